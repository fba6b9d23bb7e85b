"""Two foreign SDKs, unchanged but for the address, agree with the sandbox and with us."""

import gzip
import hashlib
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
import wechatpayv3
import wechatpayv3.core
import wechatpayv3.utils
from alipay import AliPay, DCAliPay
from cryptography.hazmat.primitives.serialization import Encoding

from idempotency.ids import new_id
from payments.providers.alipay.bill import read_bill
from payments.providers.base import TradeStatus
from payments.providers.documents import CHINA
from payments.providers.wechat import bill as wechat_bill
from payments.providers.wechat.signing import Signer
from tests.integration.payments.providers.conftest import Listener, towards
from tests.sandbox import Sandbox

# how `python-alipay-sdk` reads certificates is its own affair
pytestmark = pytest.mark.filterwarnings("ignore:X509.* is deprecated:DeprecationWarning")


@pytest.fixture(params=["certificate mode", "public-key mode"])
def wechat(
    request: pytest.FixtureRequest, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> wechatpayv3.WeChatPay:
    """`wechatpayv3`; in certificate mode it fetches the platform's certificate by itself."""
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


def test_wechatpayv3_creates_queries_refunds_closes_and_decrypts(
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
    assert json.loads(wechat.query(out_trade_no=number)[1])["trade_state"] == "REFUND"
    other = new_id().hex
    wechat.pay(description="mug", out_trade_no=other, amount={"total": 1}, notify_url=listener.url)
    assert wechat.close(out_trade_no=other)[0] == 204
    assert json.loads(wechat.query(out_trade_no=other)[1])["trade_state"] == "CLOSED"


IN_ONE_MODE = pytest.mark.parametrize("wechat", ["certificate mode"], indirect=True)


@IN_ONE_MODE
def test_wechatpayv3_opens_the_wallet_s_other_ways(
    wechat: wechatpayv3.WeChatPay, sandbox: Sandbox, listener: Listener
) -> None:
    address = {"payer_client_ip": "203.0.113.7", "h5_info": {"type": "Wap"}}
    ways = {
        wechatpayv3.WeChatPayType.JSAPI: ({"payer": {"openid": "oUpF8uMuAJO"}}, "prepay_id", "JSAPI"),
        wechatpayv3.WeChatPayType.H5: ({"scene_info": address}, "h5_url", "MWEB"),
    }
    for way, (more, member, trade_type) in ways.items():
        order = {"description": "mug", "out_trade_no": new_id().hex, "amount": {"total": 1}}
        code, text = wechat.pay(**order, notify_url=listener.url, pay_type=way, **more)
        assert (code, list(json.loads(text))) == (200, [member])
        sandbox.pay(order["out_trade_no"])
        form = wechat.callback(*listener.next())["resource"]
        assert (form["out_trade_no"], form["trade_type"]) == (order["out_trade_no"], trade_type)


@IN_ONE_MODE
def test_wechatpayv3_downloads_our_bill_and_certificates(
    wechat: wechatpayv3.WeChatPay, sandbox: Sandbox, number: str
) -> None:
    wechat.pay(
        description="杯子,`", out_trade_no=number, amount={"total": 1990}, notify_url="http://127.0.0.1:1/n"
    )
    sandbox.pay(number)
    day = json.loads(wechat.query(out_trade_no=number)[1])["success_time"][:10]
    code, text = wechat.trade_bill(bill_date=day)
    assert code == 200, text
    announced = json.loads(text)
    code, packed = wechat.download_bill(announced["download_url"])
    content = gzip.decompress(packed)
    assert (code, hashlib.sha1(content).hexdigest()) == (200, announced["hash_value"])
    (line,) = [line for line in wechat_bill.parse(content) if line.out_trade_no == number]
    assert (line.amount_minor, line.currency) == (1990, "CNY")
    ours = towards(sandbox)["wechat"]
    assert line in ours.bill(day=date.fromisoformat(day))
    wechat._core._update_certificates()
    theirs = {f"{each.serial_number:X}": each.public_bytes(Encoding.PEM) for each in wechat._core._certificates}
    assert list(theirs) == [sandbox.keys.platform_serial]
    assert theirs == ours.download_certificates()


@IN_ONE_MODE
def test_the_sdk_signs_the_wallet_s_arguments_as_we_do(wechat: wechatpayv3.WeChatPay, sandbox: Sandbox) -> None:
    settings = sandbox.keys.settings
    ours = Signer(mch_id="", serial="", key=sandbox.keys.merchant)
    params = ours.wallet_params(app_id=settings["WECHAT_APP_ID"], prepay_id="wx201410272009", now=1_790_000_000)
    signed = wechat.sign([params["appId"], params["timeStamp"], params["nonceStr"], params["package"]])
    assert (params["paySign"], params["package"]) == (signed, "prepay_id=wx201410272009")


@pytest.fixture(params=["key mode", "certificate mode"])
def alipay(request: pytest.FixtureRequest, sandbox: Sandbox) -> AliPay:
    """`python-alipay-sdk`; its class for certificate mode reads the certificates by itself."""
    settings = sandbox.keys.settings
    files = sandbox.keys.alipay_certificates.settings
    given = {
        "appid": settings["ALIPAY_APP_ID"],
        "app_notify_url": None,
        "app_private_key_string": Path(settings["ALIPAY_APP_KEY_FILE"]).read_text(),
        "sign_type": "RSA2",
    }
    if request.param == "certificate mode":
        sdk = DCAliPay(
            **given,
            app_public_key_cert_string=Path(files["ALIPAY_APP_CERT_FILE"]).read_text(),
            alipay_public_key_cert_string=Path(files["ALIPAY_PUBLIC_CERT_FILE"]).read_text(),
            alipay_root_cert_string=Path(files["ALIPAY_ROOT_CERT_FILE"]).read_text(),
        )
    else:
        sdk = AliPay(**given, alipay_public_key_string=Path(settings["ALIPAY_PUBLIC_KEY_FILE"]).read_text())
    sdk._gateway = f"{sandbox.url}/alipay/gateway.do"
    return sdk


def verifies(alipay: AliPay, body: bytes) -> bool:
    form = dict(parse_qsl(body.decode()))
    return bool(alipay.verify(form, form.pop("sign")))


def opened(alipay: AliPay, number: str, **more: Any) -> None:
    """The shopper follows the SDK's address to the cashier."""
    query = alipay.api_alipay_trade_page_pay("杯子 {1}", number, "19.90", **more)
    page = httpx.get(f"{alipay._gateway}?{query}", follow_redirects=True, trust_env=False)
    assert (page.status_code, "19.90" in page.text) == (200, True)


def test_python_alipay_sdk_creates_queries_refunds_closes_and_verifies(
    alipay: AliPay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    opened(alipay, number, notify_url=listener.url)
    assert alipay.api_alipay_trade_query(out_trade_no=number)["trade_status"] == "WAIT_BUYER_PAY"
    sandbox.pay(number)
    _, body = listener.next()
    assert verifies(alipay, body)
    assert not verifies(alipay, body.replace(b"19.90", b"19.91"))
    assert dict(parse_qsl(body.decode()))["trade_status"] == "TRADE_SUCCESS"
    refunded = alipay.api_alipay_trade_refund("9.90", out_trade_no=number, out_request_no="r-0001")
    assert (refunded["code"], refunded["fund_change"]) == ("10000", "Y")
    asked = alipay.api_alipay_trade_fastpay_refund_query("r-0001", out_trade_no=number)
    assert asked["refund_amount"] == "9.90"
    opened(alipay, other := new_id().hex)
    assert alipay.api_alipay_trade_close(out_trade_no=other)["code"] == "10000"


@pytest.mark.parametrize("alipay", ["key mode"], indirect=True)
def test_python_alipay_sdk_s_codes_and_bill_are_ours(
    alipay: AliPay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    ours = towards(sandbox)["alipay"]
    answer = alipay.api_alipay_trade_precreate("杯子", number, "19.90", notify_url=listener.url)
    assert (answer["code"], answer["out_trade_no"]) == ("10000", number)
    assert ours.query(out_trade_no=number).status is TradeStatus.NOT_FOUND
    assert httpx.get(answer["qr_code"], follow_redirects=True, trust_env=False).status_code == 200
    assert alipay.api_alipay_trade_query(out_trade_no=number)["trade_status"] == "WAIT_BUYER_PAY"
    sandbox.pay(number)
    _, body = listener.next()
    assert verifies(alipay, body)
    facts = ours.query(out_trade_no=number).facts
    assert ours.read_notification(headers={}, body=body, now=datetime.now(UTC)).facts == facts
    day = facts[0].occurred_at.astimezone(CHINA).date()
    method = "alipay.data.dataservice.bill.downloadurl.query"
    answer = alipay.server_api(method, {"bill_type": "trade", "bill_date": f"{day:%Y-%m-%d}"})
    packed = httpx.get(answer["bill_download_url"], trust_env=False).content
    lines = read_bill(packed, day=day, seller_id=sandbox.keys.settings["ALIPAY_SELLER_ID"])
    assert number in {line.out_trade_no for line in lines}
    none = alipay.server_api(method, {"bill_type": "trade", "bill_date": "2020-01-01"})
    assert (none["code"], none["sub_code"]) == ("40004", "isp.bill_not_exist")
