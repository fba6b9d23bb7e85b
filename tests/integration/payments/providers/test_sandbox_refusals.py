"""The sandbox is as strict as the platforms: it refuses with their codes."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers import registry
from payments.providers.actions import PayMethod
from payments.providers.base import Provider, TradeStatus
from tests.integration.payments.providers.conftest import asked, opened, refund, towards, waiting
from tests.sandbox import Sandbox


@pytest.fixture
def built(sandbox: Sandbox) -> dict[str, Any]:
    return towards(sandbox)


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


ADDRESS = {"payer_client_ip": "203.0.113.7"}
NO_ORDERS: list[tuple[str, dict[str, Any], str]] = [
    ("native", {"mchid": "1"}, "MCH_NOT_EXISTS"),
    ("native", {"appid": "wx0"}, "APPID_MCHID_NOT_MATCH"),
    *(("native", {"amount": wrong}, "PARAM_ERROR") for wrong in ({"total": 0}, {"total": 1, "currency": "USD"})),
    *(("native", wrong, "PARAM_ERROR") for wrong in ({"out_trade_no": "no!"}, {"description": None})),
    *(("jsapi", wrong, "PARAM_ERROR") for wrong in ({}, {"payer": {"openid": ""}})),
    *(
        ("h5", wrong, "PARAM_ERROR")
        for wrong in ({}, {"scene_info": ADDRESS}, {"scene_info": {**ADDRESS, "h5_info": {"type": "Fax"}}})
    ),
]


@pytest.mark.parametrize(("way", "changed", "code"), NO_ORDERS)
def test_wechat_refuses_what_is_not_an_order(
    sandbox: Sandbox, built: dict[str, Any], way: str, changed: dict[str, Any], code: str
) -> None:
    with pytest.raises(ProviderRejected, match=code):
        built["wechat"]._call("POST", f"/v3/pay/transactions/{way}", native(sandbox, **changed))


def test_wechat_keeps_a_number_to_its_order_and_refunds_within_it(sandbox: Sandbox, built: dict[str, Any]) -> None:
    call, order = built["wechat"]._call, native(sandbox)
    call("POST", "/v3/pay/transactions/native", order)
    for way, changed in (("native", {"amount": {"total": 1}}), ("jsapi", {"payer": {"openid": "another"}})):
        with pytest.raises(ProviderRejected, match="OUT_TRADE_NO_USED"):
            call("POST", f"/v3/pay/transactions/{way}", {**order, **changed})
    sandbox.pay(order["out_trade_no"])
    with pytest.raises(ProviderRejected, match="ORDERPAID"):
        call("POST", "/v3/pay/transactions/native", order)
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


def test_a_forged_request_is_refused(sandbox: Sandbox, number: str) -> None:
    channels = sandbox.channels()
    channels["wechat"]["MCH_KEY_FILE"] = channels["alipay"]["APP_KEY_FILE"]
    channels["alipay"]["APP_KEY_FILE"] = sandbox.channels()["wechat"]["MCH_KEY_FILE"]
    channels["stripe"]["SECRET_KEY"] = "sk_test_of_somebody_else"
    for provider in registry.build(channels).values():
        with pytest.raises(ProviderUnavailable, match=r"SIGN_ERROR|isv.invalid-signature|Invalid API Key"):
            provider.query(out_trade_no=number)
    settings = sandbox.keys.settings
    ours = f'mchid="{settings["WECHAT_MCH_ID"]}",serial_no="{settings["WECHAT_MCH_SERIAL"]}"'
    for said in ("", f'WECHATPAY2-SHA256-RSA2048 {ours},timestamp="1",nonce_str="n"'):
        answer = sandbox.http.get("/wechat/v3/certificates", headers={"Authorization": said})
        assert (answer.status_code, answer.json()["code"]) == (401, "SIGN_ERROR")


def test_what_is_not_paid_or_expired(provider: Provider, sandbox: Sandbox, number: str) -> None:
    with pytest.raises(ProviderRejected):
        refund(provider, number, new_id().hex, 100)
    opened(provider, number, expires_at=datetime.now(UTC) - timedelta(seconds=5))
    if provider.channel == "stripe":  # whose intents wait until somebody cancels them
        assert provider.query(out_trade_no=number).status is TradeStatus.PENDING
        provider.close(out_trade_no=number)
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": number}).status_code == 409
    assert provider.query(out_trade_no=number).status is TradeStatus.CLOSED


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


@pytest.mark.parametrize("name", ["app_cert_sn", "alipay_root_cert_sn"])
def test_the_sandbox_checks_both_certificates_of_a_request(sandbox: Sandbox, name: str) -> None:
    files = sandbox.keys.alipay_certificates.settings
    fields = {field.removeprefix("ALIPAY_"): file for field, file in files.items()} | {"PUBLIC_KEY_FILE": ""}
    alipay: Any = registry.build({"alipay": sandbox.channels()["alipay"] | fields})["alipay"]
    assert alipay.query(out_trade_no=new_id().hex).status is TradeStatus.NOT_FOUND
    genuine = dict(alipay._trust.parameters)
    for changed in (genuine | {name: "0" * 32}, {other: sn for other, sn in genuine.items() if other != name}):
        alipay._trust.parameters = changed
        with pytest.raises(ProviderRejected, match=rf"isv\.invalid-{name.replace('_', '-')}"):
            alipay.query(out_trade_no=new_id().hex)


def test_alipay_s_code_is_one_a_number_and_amount_until_it_ends(built: dict[str, Any], number: str) -> None:
    alipay = built["alipay"]

    def code(**more: Any) -> str:
        return str(asked(alipay, number, method=PayMethod.PRECREATE, return_url="", **more).url)

    for _ in range(2):  # not scanned yet, then scanned
        url = code()
        assert code() == url
        with pytest.raises(ProviderRejected, match=r"ACQ\.CONTEXT_INCONSISTENT"):
            code(amount_minor=1)
        httpx.get(url, follow_redirects=True, trust_env=False).raise_for_status()
    closed = alipay.close(out_trade_no=number)
    assert (closed.status, closed.may_yet_begin) == (TradeStatus.CLOSED, False)
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_HAS_CLOSE"):
        code()


def test_alipay_s_page_is_for_genuine_addresses_and_one_amount(sandbox: Sandbox, built: dict[str, Any]) -> None:
    number = new_id().hex

    def address(**changed: Any) -> str:
        content = {"out_trade_no": number, "total_amount": "19.90", "subject": "Mug", **changed}
        return "/alipay/gateway.do?" + urlencode(built["alipay"]._signed("alipay.trade.page.pay", content, {}))

    def page(url: str) -> httpx.Response:
        return sandbox.http.get(url, follow_redirects=True)

    assert page(address() + "x").status_code == 400
    assert "¥19.90" in page(address()).text
    assert page(address(total_amount="0.01")).status_code == 400
    sandbox.pay(number)
    assert "Paid." in page(address()).text
    trade = built["alipay"]._call("alipay.trade.query", {"out_trade_no": number})
    by_theirs = {"trade_no": trade["trade_no"]}
    assert built["alipay"]._call("alipay.trade.query", by_theirs, repeats=("trade_no",))["out_trade_no"] == number
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_NOT_EXIST"):
        built["alipay"]._call("alipay.trade.query", {"trade_no": "nobody's"})
    assert sandbox.http.get("/alipay/bill", params={"fileId": "forged"}).status_code == 403


@pytest.mark.parametrize(
    "faults",
    [
        *([], {"unknown": 1}, {"drop_rate": 2}, {"duplicates": -1}, {"delay_ms": "soon"}, {"parallel": None}),
        {"pay_closed": 2, "drop_rate": 1},
    ],
)
def test_control_refuses_what_it_does_not_know(sandbox: Sandbox, faults: Any) -> None:
    before = sandbox.faults()
    assert sandbox.http.post("/_control/faults", json=faults).status_code == 400
    assert sandbox.faults() == before
    for nobody in ("nobody", 1, {}, None):
        assert sandbox.http.post("/_control/pay", json={"out_trade_no": nobody}).status_code == 404
    for body in (b"{", b"{}", b'{"channel":"alipay"}', b'{"channel":"wechat","announce":1}'):
        assert sandbox.http.post("/_control/rotate", content=body).status_code == 400


def test_a_fault_is_true_a_number_or_a_part(sandbox: Sandbox) -> None:
    for wrong, charged_minor in ((True, 2090), (7, 1997), (-5000, 2090), (0.5, 2090)):
        sandbox.faults(wrong_amount=wrong)
        assert sandbox.pay(waiting(sandbox))["charged_minor"] == charged_minor
    for duplicates, sent in ((True, 2), (False, 1), (3, 3)):
        sandbox.faults(duplicates=duplicates)
        number, before = waiting(sandbox), sandbox.http.get("/_control/deliveries").json()
        sandbox.pay(number)
        assert sum(sandbox.http.get("/_control/deliveries").json().values()) - sum(before.values()) == sent
    sandbox.faults(timeout_after_success=0.5)
    with pytest.raises(OutcomeUnknown):
        waiting(sandbox)
