"""Two SDKs that others wrote, unchanged but for the address, agree with the sandbox and with our primitives."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
import wechatpayv3
import wechatpayv3.core
from alipay import AliPay

from idempotency.ids import new_id
from payments.providers import registry
from payments.providers.alipay import signed_text
from tests.contract.conftest import Listener
from tests.sandbox import Sandbox


@pytest.fixture
def number() -> str:
    return new_id().hex


@pytest.fixture(params=["certificate mode", "public-key mode"])
def wechat(
    request: pytest.FixtureRequest, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> wechatpayv3.WeChatPay:
    """`wechatpayv3`; in certificate mode it fetches and decrypts the platform's certificate by itself."""
    original = wechatpayv3.core.Core._init_certificates

    def towards_sandbox(core: Any) -> None:
        core._gate_way = f"{sandbox.url}/wechat"
        original(core)

    monkeypatch.setattr(wechatpayv3.core.Core, "_init_certificates", towards_sandbox)
    settings = sandbox.keys.settings
    more: dict[str, str] = {}
    if request.param == "public-key mode":
        path = next(Path(settings["WECHAT_PLATFORM_KEYS_DIR"]).glob("PUB_KEY_ID_*.pem"))
        more = {"public_key": path.read_text(), "public_key_id": path.stem}
    sdk = wechatpayv3.WeChatPay(
        wechatpay_type=wechatpayv3.WeChatPayType.NATIVE,
        mchid=settings["WECHAT_MCH_ID"],
        private_key=Path(settings["WECHAT_MCH_KEY_FILE"]).read_text(),
        cert_serial_no=settings["WECHAT_MCH_SERIAL"],
        appid=settings["WECHAT_APP_ID"],
        apiv3_key=settings["WECHAT_API_V3_KEY"],
        **more,
    )
    sdk._core._gate_way = f"{sandbox.url}/wechat"
    return sdk


def test_wechatpayv3_creates_queries_refunds_and_decrypts(
    wechat: wechatpayv3.WeChatPay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    code, text = wechat.pay(
        description="杯子", out_trade_no=number, amount={"total": 1990}, notify_url=listener.url
    )
    assert code == 200, text
    assert json.loads(text)["code_url"].startswith("weixin://wxpay/bizpayurl?pr=")
    code, text = wechat.query(out_trade_no=number)
    assert json.loads(text)["trade_state"] == "NOTPAY"
    sandbox.pay(number)
    headers, body = listener.next()
    notice = wechat.callback(headers, body)
    assert notice["event_type"] == "TRANSACTION.SUCCESS"
    assert (notice["resource"]["out_trade_no"], notice["resource"]["amount"]["total"]) == (number, 1990)
    code, text = wechat.refund(
        out_refund_no=new_id().hex,
        out_trade_no=number,
        amount={"refund": 990, "total": 1990, "currency": "CNY"},
        notify_url=listener.url,
    )
    assert code == 200, text
    headers, body = listener.next()
    refunded = wechat.callback(headers, body)
    assert (refunded["event_type"], refunded["resource"]["amount"]["refund"]) == ("REFUND.SUCCESS", 990)
    code, text = wechat.query(out_trade_no=number)
    assert json.loads(text)["trade_state"] == "REFUND"


def test_wechatpayv3_closes(wechat: wechatpayv3.WeChatPay, number: str) -> None:
    wechat.pay(description="mug", out_trade_no=number, amount={"total": 1}, notify_url="http://127.0.0.1:1/n")
    assert wechat.close(out_trade_no=number)[0] == 204
    assert json.loads(wechat.query(out_trade_no=number)[1])["trade_state"] == "CLOSED"


def test_wechatpayv3_does_not_take_a_forged_notification(
    wechat: wechatpayv3.WeChatPay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    wechat.pay(description="mug", out_trade_no=number, amount={"total": 1}, notify_url=listener.url)
    sandbox.pay(number)
    headers, body = listener.next()
    assert wechat.callback(headers, body.replace(b"TRANSACTION", b"TRANSACTIOM")) is None


@pytest.fixture
def alipay(sandbox: Sandbox) -> AliPay:
    """`python-alipay-sdk`."""
    settings = sandbox.keys.settings
    sdk = AliPay(
        appid=settings["ALIPAY_APP_ID"],
        app_notify_url=None,
        app_private_key_string=Path(settings["ALIPAY_APP_KEY_FILE"]).read_text(),
        alipay_public_key_string=Path(settings["ALIPAY_PUBLIC_KEY_FILE"]).read_text(),
        sign_type="RSA2",
    )
    sdk._gateway = f"{sandbox.url}/alipay/gateway.do"
    return sdk


def test_python_alipay_sdk_creates_queries_refunds_and_verifies(
    alipay: AliPay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    query = alipay.api_alipay_trade_page_pay(
        subject="杯子 {1}", out_trade_no=number, total_amount="19.90", notify_url=listener.url
    )
    page = httpx.get(f"{alipay._gateway}?{query}", follow_redirects=True, trust_env=False)
    assert page.status_code == 200
    assert "19.90" in page.text
    assert alipay.api_alipay_trade_query(out_trade_no=number)["trade_status"] == "WAIT_BUYER_PAY"
    sandbox.pay(number)
    _, body = listener.next()
    told = dict(parse_qsl(body.decode()))
    sign = told.pop("sign")
    assert alipay.verify({**told}, sign)
    assert told["trade_status"] == "TRADE_SUCCESS"
    refunded = alipay.api_alipay_trade_refund("9.90", out_trade_no=number, out_request_no="r-0001")
    assert (refunded["code"], refunded["fund_change"]) == ("10000", "Y")
    asked = alipay.api_alipay_trade_fastpay_refund_query("r-0001", out_trade_no=number)
    assert asked["refund_amount"] == "9.90"


def test_python_alipay_sdk_closes(alipay: AliPay, sandbox: Sandbox, number: str) -> None:
    query = alipay.api_alipay_trade_page_pay(subject="mug", out_trade_no=number, total_amount="1.00")
    httpx.get(f"{alipay._gateway}?{query}", follow_redirects=True, trust_env=False).raise_for_status()
    assert alipay.api_alipay_trade_close(out_trade_no=number)["code"] == "10000"


def test_what_we_sign_for_alipay_the_sdk_verifies_and_the_other_way(
    alipay: AliPay, sandbox: Sandbox, number: str
) -> None:
    ours: Any = registry.build(sandbox.channels())["alipay"]
    parameters = ours._signed("alipay.trade.query", {"out_trade_no": number}, {})
    # the SDK verifies with Alipay's key, so it is given ours in its place
    alipay._alipay_public_key = alipay._app_private_key.public_key()
    unsigned = {name: value for name, value in parameters.items() if name != "sign"}
    assert alipay._verify(signed_text(unsigned).decode(), parameters["sign"])
    theirs = dict(parse_qsl(alipay.sign_data(dict(unsigned))))
    assert theirs["sign"] == parameters["sign"]
    ours._http.close()
