"""WeChat's three ways to pay, its bills and its changing certificates, over real HTTP against the sandbox."""

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected
from payments.providers import registry
from payments.providers.base import NextAction, NextActionType, Payer, PayMethod, TradeStatus
from payments.providers.documents import CHINA
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.keys import keep_certificates
from tests.integration.payments.providers.conftest import asked
from tests.sandbox import Sandbox

SHOPPER = Payer(openid="oUpF8uMuAJO_M2pxb1Q9zNjWeS6o", client_ip="203.0.113.7")
BACK = "http://127.0.0.1:1/orders/1?paid=ü&x=1"


@pytest.fixture
def wechat(sandbox: Sandbox) -> WeChatPay:
    made: Any = registry.build({"wechat": sandbox.channels()["wechat"]})["wechat"]
    return made


def opened(wechat: WeChatPay, number: str, method: PayMethod | None, **changed: Any) -> NextAction:
    wanted = {"description": "杯子, blue", "return_url": BACK, "method": method, "payer": SHOPPER}
    return asked(wechat, number, **{**wanted, **changed})


def test_a_phone_s_browser_pays_and_comes_back(wechat: WeChatPay, sandbox: Sandbox, number: str) -> None:
    action = opened(wechat, number, PayMethod.H5)
    assert (action.type, action.url.startswith(sandbox.url)) == (NextActionType.REDIRECT, True)
    page = httpx.get(action.url, follow_redirects=True, trust_env=False)
    assert (page.url.path, "杯子, blue" in page.text) == (f"/pay/{number}", True)
    paid = httpx.post(page.url, trust_env=False)
    assert (paid.status_code, paid.headers["Location"]) == (302, "http://127.0.0.1:1/orders/1?paid=%C3%BC&x=1")
    assert wechat.query(out_trade_no=number).status is TradeStatus.PAID
    for unknown in ("", "wx20261120000000aaaaaaaaaaaa00000000", "nobody's"):
        answer = sandbox.http.get("/wechat/checkmweb", params={"prepay_id": unknown})
        assert answer.status_code == 404


def test_a_link_runs_out_and_the_same_call_gives_a_fresh_one(wechat: WeChatPay, number: str) -> None:
    action = opened(wechat, number, PayMethod.H5)
    assert action.lives == timedelta(minutes=5)
    earlier = re.sub(r"prepay_id=wx\d{14}", "prepay_id=wx20261101000000", action.url)
    over = httpx.get(earlier, trust_env=False)
    assert (over.status_code, "This link is over" in over.text) == (410, True)
    again = opened(wechat, number, PayMethod.H5)
    assert httpx.get(again.url, trust_env=False).status_code == 302


def test_a_number_stands_for_one_way_and_one_shopper(wechat: WeChatPay, number: str) -> None:
    opened(wechat, number, PayMethod.JSAPI)
    for method, payer in [(PayMethod.NATIVE, SHOPPER), (PayMethod.JSAPI, Payer(openid="another"))]:
        with pytest.raises(ProviderRejected, match="OUT_TRADE_NO_USED"):
            opened(wechat, number, method, payer=payer)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("jsapi", {}),
        ("jsapi", {"payer": {}}),
        ("jsapi", {"payer": {"openid": ""}}),
        ("jsapi", {"payer": {"openid": 5}}),
        ("h5", {}),
        ("h5", {"scene_info": {"payer_client_ip": "203.0.113.7"}}),
        ("h5", {"scene_info": {"payer_client_ip": "", "h5_info": {"type": "Wap"}}}),
        ("h5", {"scene_info": {"payer_client_ip": "203.0.113.7", "h5_info": {"type": "Fax"}}}),
    ],
)
def test_an_order_without_its_shopper_is_refused(
    wechat: WeChatPay, number: str, path: str, part: dict[str, Any]
) -> None:
    order = {
        "appid": wechat.config.app_id,
        "mchid": wechat.config.mch_id,
        "description": "Mug",
        "out_trade_no": number,
        "notify_url": "http://127.0.0.1:1/n",
        "amount": {"total": 1990, "currency": "CNY"},
    }
    with pytest.raises(ProviderRejected, match="PARAM_ERROR"):
        wechat._call("POST", f"/v3/pay/transactions/{path}", order | part)
    assert wechat.query(out_trade_no=number).status is TradeStatus.NOT_FOUND


def china_day(moment: datetime | None) -> date:
    assert moment is not None
    return moment.astimezone(CHINA).date()


def test_days_without_a_bill(wechat: WeChatPay) -> None:
    assert wechat.bill(day=date(2020, 1, 1)) == ()
    with pytest.raises(ProviderRejected, match="PARAM_ERROR"):
        wechat.bill(day=datetime.now(CHINA).date() + timedelta(days=2))
    for query in (
        "bill_date=yesterday",
        "bill_date=2020-01-01&bill_type=SUCCESS",
        "bill_date=2020-01-01&tar_type=ZIP",
    ):
        with pytest.raises(ProviderRejected, match="PARAM_ERROR"):
            wechat._call("GET", f"/v3/bill/tradebill?{query}")


def test_a_file_is_for_the_merchant_with_its_token_only(wechat: WeChatPay, sandbox: Sandbox, number: str) -> None:
    unpaid = new_id().hex
    for each in (number, unpaid):
        opened(wechat, each, None)
    sandbox.pay(number)
    day = china_day(wechat.query(out_trade_no=number).facts[0].occurred_at)
    announced = wechat._call("GET", f"/v3/bill/tradebill?bill_date={day}&bill_type=ALL")
    assert set(announced) == {"hash_type", "hash_value", "download_url"}
    unsigned = httpx.get(announced["download_url"], trust_env=False)
    assert (unsigned.status_code, unsigned.json()["code"]) == (401, "SIGN_ERROR")
    content = wechat._download(announced["download_url"], bytes_max=10**7)
    assert (number.encode() in content, unpaid.encode() in content) == (True, False)
    lines = content.decode().split("\r\n")
    assert (lines[0].split(",")[0], lines[-1]) == ("交易时间", "")
    assert all(value.startswith("`") for value in lines[1].split(",`")[:1])
    with pytest.raises(OutcomeUnknown, match="404"):
        wechat._download(announced["download_url"][:-3] + "xxx", bytes_max=10**7)


@pytest.fixture
def rotating(tmp_path: Path) -> Iterator[Sandbox]:
    """A sandbox of its own, because what it signs with changes for good."""
    made = Sandbox(tmp_path / "sandbox")
    yield made
    made.stop()


def rotate(sandbox: Sandbox, **more: Any) -> str:
    answer = sandbox.http.post("/_control/rotate", json={"channel": "wechat", **more})
    serial: str = answer.raise_for_status().json()["serial"]
    return serial


def started_with(folder: Path, sandbox: Sandbox) -> WeChatPay:
    """A provider as it is after a start with the platform's keys in `folder`."""
    settings = {**sandbox.channels()["wechat"], "PLATFORM_KEYS_DIR": str(folder)}
    made: Any = registry.build({"wechat": settings})["wechat"]
    assert isinstance(made, WeChatPay)
    return made


def test_a_rotation_outlives_a_restart(rotating: Sandbox, tmp_path: Path) -> None:
    second = rotate(rotating, announce=True)
    assert rotate(rotating) == second
    shared = Path(rotating.keys.settings["WECHAT_PLATFORM_KEYS_DIR"])
    provider = started_with(shared, rotating)
    assert keep_certificates(shared, provider.download_certificates()) == (second,)
    rotating.stop()
    again = Sandbox(rotating.folder)
    try:
        assert again.keys.platform_serial == rotating.keys.platform_serial
        folder = tmp_path / "keys"
        folder.mkdir()
        keep_certificates(folder, {second: (shared / f"{second}.pem").read_bytes()})
        restarted = started_with(folder, again)
        assert list(restarted.download_certificates()) == [second, again.keys.platform_serial]
    finally:
        again.stop()


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"{", b'{"channel":"alipay"}', b'{"channel":"wechat","announce":1}']
)
def test_the_rotation_is_of_wechat_only(sandbox: Sandbox, body: bytes) -> None:
    assert sandbox.http.post("/_control/rotate", content=body).status_code == 400
