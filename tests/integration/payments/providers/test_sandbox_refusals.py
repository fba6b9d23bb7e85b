"""The sandbox is as strict as the platforms: what it refuses, with their codes, and what its pages say."""

from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import ProviderRejected
from payments.providers import registry
from tests.sandbox import Sandbox


@pytest.fixture
def built(sandbox: Sandbox) -> dict[str, Any]:
    made: dict[str, Any] = registry.build(sandbox.channels())
    return made


def native(sandbox: Sandbox, **changed: Any) -> dict[str, Any]:
    settings = sandbox.keys.settings
    wanted = {
        "appid": settings["WECHAT_APP_ID"],
        "mchid": settings["WECHAT_MCH_ID"],
        "description": "Mug",
        "out_trade_no": new_id().hex,
        "notify_url": "http://127.0.0.1:1/n",
        "amount": {"total": 1990, "currency": "CNY"},
    }
    return {name: value for name, value in {**wanted, **changed}.items() if value is not None}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"mchid": "1"}, "MCH_NOT_EXISTS"),
        ({"appid": "wx0"}, "APPID_MCHID_NOT_MATCH"),
        ({"out_trade_no": "no!"}, "PARAM_ERROR"),
        ({"notify_url": "/relative"}, "PARAM_ERROR"),
        ({"amount": {"total": 0}}, "PARAM_ERROR"),
        ({"amount": {"total": "1"}}, "PARAM_ERROR"),
        ({"amount": {"total": 1, "currency": "USD"}}, "PARAM_ERROR"),
        ({"description": None}, "PARAM_ERROR"),
    ],
)
def test_wechat_refuses_what_is_not_an_order(
    sandbox: Sandbox, built: dict[str, Any], changed: dict[str, Any], code: str
) -> None:
    with pytest.raises(ProviderRejected, match=code):
        built["wechat"]._call("POST", "/v3/pay/transactions/native", native(sandbox, **changed))


def test_wechat_refunds_are_checked(sandbox: Sandbox, built: dict[str, Any]) -> None:
    call, order = built["wechat"]._call, native(sandbox)
    call("POST", "/v3/pay/transactions/native", order)
    sandbox.pay(order["out_trade_no"])
    number = {"out_trade_no": order["out_trade_no"], "out_refund_no": new_id().hex}

    def refuse(code: str, **body: Any) -> None:
        with pytest.raises(ProviderRejected, match=code):
            call("POST", "/v3/refund/domestic/refunds", body)

    refuse("INVALID_REQUEST", **number, amount={"refund": 1, "total": 1, "currency": "CNY"})
    refuse("PARAM_ERROR", **number, amount={"refund": 0, "total": 1990, "currency": "CNY"})
    refuse("RESOURCE_NOT_EXISTS", transaction_id="nobody's", out_refund_no="r", amount={"refund": 1, "total": 1})
    paid = call("GET", f"/v3/pay/transactions/out-trade-no/{order['out_trade_no']}?mchid={order['mchid']}")
    by_transaction = {"transaction_id": paid["transaction_id"], "out_refund_no": number["out_refund_no"]}
    amount = {"refund": 990, "total": 1990, "currency": "CNY"}
    assert call("POST", "/v3/refund/domestic/refunds", {**by_transaction, "amount": amount})["status"] == "SUCCESS"
    refuse("OUT_TRADE_NO_USED", **by_transaction, amount={**amount, "refund": 5})
    with pytest.raises(ProviderRejected, match="MCH_NOT_EXISTS"):
        call("GET", f"/v3/pay/transactions/out-trade-no/{order['out_trade_no']}?mchid=1")


@pytest.mark.parametrize(
    "authorization",
    ["", 'WECHATPAY2-SHA256-RSA2048 mchid="1"', 'WECHATPAY2-SHA256-RSA2048 {ours},timestamp="1",nonce_str="n"'],
)
def test_wechat_refuses_a_request_that_is_not_the_merchants(sandbox: Sandbox, authorization: str) -> None:
    settings = sandbox.keys.settings
    ours = f'mchid="{settings["WECHAT_MCH_ID"]}",serial_no="{settings["WECHAT_MCH_SERIAL"]}"'
    answer = sandbox.http.get(
        "/wechat/v3/certificates", headers={"Authorization": authorization.format(ours=ours)}
    )
    assert (answer.status_code, answer.json()["code"]) == (401, "SIGN_ERROR")


def test_alipay_refuses_methods_applications_and_contents(sandbox: Sandbox, built: dict[str, Any]) -> None:
    alipay = built["alipay"]
    with pytest.raises(ProviderRejected, match=r"isv\.invalid-method"):
        alipay._call("alipay.trade.unheard.of", {})
    with pytest.raises(ProviderRejected, match=r"ACQ\.INVALID_PARAMETER"):
        alipay._call("alipay.trade.query", {})
    parameters = alipay._signed("alipay.trade.query", {"out_trade_no": "x"}, {})
    for changed, code in [
        ({"app_id": "1"}, "isv.invalid-app-id"),
        ({"sign_type": "RSA"}, "isv.invalid-signature-type"),
        ({"version": "2.0"}, "isv.invalid-signature"),
    ]:
        answer = sandbox.http.post("/alipay/gateway.do", data={**parameters, **changed})
        assert answer.json()["alipay_trade_query_response"]["sub_code"] == code


def test_alipay_s_page_is_for_genuine_addresses_and_one_amount(sandbox: Sandbox, built: dict[str, Any]) -> None:
    number = new_id().hex

    def address(**changed: Any) -> str:
        content = {"out_trade_no": number, "total_amount": "19.90", "subject": "Mug", **changed}
        return "/alipay/gateway.do?" + urlencode(built["alipay"]._signed("alipay.trade.page.pay", content, {}))

    def opened(url: str) -> httpx.Response:
        return sandbox.http.get(url, follow_redirects=True)

    assert opened(address() + "x").status_code == 400
    assert "¥19.90" in opened(address()).text
    assert opened(address(total_amount="0.01")).status_code == 400
    sandbox.pay(number)
    assert "Paid." in opened(address()).text
    trade = built["alipay"]._call("alipay.trade.query", {"out_trade_no": number})
    by_theirs = {"trade_no": trade["trade_no"]}
    assert built["alipay"]._call("alipay.trade.query", by_theirs, repeats=("trade_no",))["out_trade_no"] == number
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_NOT_EXIST"):
        built["alipay"]._call("alipay.trade.query", {"trade_no": "nobody's"})


def test_the_shopper_s_pages(sandbox: Sandbox, built: dict[str, Any]) -> None:
    order = native(sandbox, description="Enamel mug")
    answer = built["wechat"]._call("POST", "/v3/pay/transactions/native", order)
    prepay = answer["code_url"].rsplit("=", 1)[1]
    page = sandbox.http.get("/wechat/scan", params={"pr": prepay}, follow_redirects=True)
    assert page.url.path == f"/pay/{order['out_trade_no']}"
    assert "Enamel mug" in page.text
    built["wechat"].close(out_trade_no=order["out_trade_no"])
    late = sandbox.http.post(f"/pay/{order['out_trade_no']}", follow_redirects=True)
    assert "cannot be paid any more" in late.text
    assert sandbox.http.get("/wechat/scan", params={"pr": "nobody's"}).status_code == 404
    assert sandbox.http.get("/pay/nobody").status_code == 404
    sandbox.faults(refund_429=True)
    home = sandbox.http.get("/").text
    assert "refund_429=True" in home
    assert "closed" in home
