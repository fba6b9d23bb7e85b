"""Answers that prove nothing: unsigned, stale, torn or of another shape."""

import json
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa as private

from payments.errors import OutcomeUnknown, ProviderError, ProviderRejected, ProviderUnavailable
from payments.providers import rsa
from payments.providers.actions import Payer, PayMethod
from payments.providers.alipay.client import Alipay
from payments.providers.alipay.signing import signed_member
from payments.providers.base import RefundStatus, TradeStatus
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.signing import answer_message
from payments.sandbox import state
from tests.unit.payments.providers.conftest import (
    NUMBER,
    REFUND_NUMBER,
    Company,
    Says,
    alipay_says,
    create,
    refund,
    signed,
    unpaid,
)

DAY = date(2026, 11, 20)
FOREIGN = private.generate_private_key(public_exponent=65537, key_size=2048)
NUMBERS = {"out_trade_no": NUMBER, "out_refund_no": REFUND_NUMBER}
SHOPPER = Payer(openid="oUpF8uMuAJO", client_ip="203.0.113.7")
Call = Callable[[Any], Any]

CALLS: dict[str, Call] = {
    "query": lambda provider: provider.query(out_trade_no=NUMBER),
    "close": lambda provider: provider.close(out_trade_no=NUMBER),
    "refund": lambda provider: refund(provider, reason="changed mind"),
    "query_refund": lambda provider: provider.query_refund(**NUMBERS),
    "bill": lambda provider: provider.bill(day=DAY),
}
WECHAT_CALLS: dict[str, Call] = {
    "native": create,
    "jsapi": lambda provider: create(provider, method=PayMethod.JSAPI, payer=SHOPPER),
    "h5": lambda provider: create(provider, method=PayMethod.H5, payer=SHOPPER),
    **CALLS,
    "certificates": lambda provider: provider.download_certificates(),
}
ALIPAY_CALLS: dict[str, Call] = {
    "precreate": lambda provider: create(provider, method=PayMethod.PRECREATE),
    **CALLS,
}
# good news for every call, if it were WeChat's
GOOD_NEWS = {
    **NUMBERS,
    "code": "NO_STATEMENT_EXIST",
    "code_url": "weixin://x",
    "h5_url": "https://wx.tenpay.com/x",
    "prepay_id": "wx1",
    "status": "SUCCESS",
    "trade_state": "SUCCESS",
    "hash_type": "SHA1",
    "hash_value": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "download_url": "http://127.0.0.1:1/v3/billdownload/file?token=x",
    "data": [],
}


class Unproven(NamedTuple):
    """An answer that must not count, and a part of the error that says why."""

    name: str
    answer: Says
    why: str = ""


def believed(company: Company, call: Call, provider: Any, answers: list[Unproven]) -> list[str]:
    """Name the answers that counted for something, or were not the end of the call."""
    found = []
    for name, answer, why in answers:
        company.answer = answer
        company.asked.clear()
        try:
            call(provider)
        except OutcomeUnknown as error:
            if why in str(error) and len(company.asked) == 1:  # no key is fetched, no redirect followed
                continue
        except (ProviderRejected, ProviderUnavailable):
            """Said no more than that it is not done: it was believed."""
        found.append(name)
    return found


def said(status: int, body: bytes, **headers: str) -> Says:
    return lambda _: (status, headers, body)


def with_headers(answer: Says, **changed: str) -> Says:
    status, headers, body = answer(b"")
    return said(status, body, **headers | {name.replace("_", "-"): value for name, value in changed.items()})


def unproven_by_wechat() -> Iterator[Unproven]:
    news = json.dumps(GOOD_NEWS).encode()
    for status in (200, 204, 401, 404, 429):
        yield Unproven(f"unsigned {status}", said(status, b"" if status == 204 else news), "not signed")
    for status in (302, 500):
        yield Unproven(f"unsigned {status}", said(status, news, Location="http://127.0.0.1:1/"))
    yield Unproven("server error", signed({"code": "SYSTEM_ERROR"}, status=500), "500")
    for status in (200, 400):
        for age in (301, -900):
            stale = signed(GOOD_NEWS, status=status, age_seconds=age)
            yield Unproven(f"{age} s old {status}", stale, "too far from ours")
        for serial in ("0" * 40, "PUB_KEY_ID_1"):
            unknown = with_headers(signed(GOOD_NEWS, status=status), Wechatpay_Serial=serial)
            yield Unproven(f"by an unknown key {status}", unknown, "do not hold")
    genuine = signed(GOOD_NEWS)
    _, headers, body = genuine(b"")
    message = answer_message(timestamp=headers["Wechatpay-Timestamp"], nonce="n", body=body)
    by_us = with_headers(genuine, Wechatpay_Signature=rsa.sign(message, state.keys().merchant))
    yield Unproven("by the merchant under the platform's serial", by_us, "does not verify")
    for document in ([{"code": "ORDER_NOT_EXIST"}], "text", None, b"\xff", b"{", b"[" * 20_000):
        for status in (200, 404):
            yield Unproven(f"{str(document)[:9]} {status}", signed(document, status=status))


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("call", WECHAT_CALLS)
def test_what_wechat_has_not_signed_proves_nothing(wechat: WeChatPay, company: Company, call: str) -> None:
    assert believed(company, WECHAT_CALLS[call], wechat, [*unproven_by_wechat()]) == []


PAID = {**NUMBERS, "trade_state": "SUCCESS", "mchid": "x", "transaction_id": "x"}


AMOUNT = {"refund": 990, "total": 1990, "currency": "CNY"}


REFUNDED = {**NUMBERS, "status": "SUCCESS", "refund_id": "x", "transaction_id": "x", "amount": AMOUNT}


def learned(call: Call, provider: Any) -> Any:
    """Return the status that a call learns, with the kinds of facts of money that moved; or how it fails."""
    try:
        found = call(provider)
    except ProviderError as error:
        return getattr(error, "code", type(error))
    kinds = [fact.kind.value for fact in found.facts if fact.kind != "closed"]
    return (found.status, *kinds) if kinds else found.status


WECHAT_SAYS: list[tuple[str, int, Any, Any]] = [
    *(("query", 200, {"trade_state": state}, TradeStatus.PENDING) for state in ("NOTPAY", "USERPAYING", "NEW")),
    *(("query", 200, {"trade_state": state}, TradeStatus.CLOSED) for state in ("CLOSED", "REVOKED")),
    *(("query", 404, {"code": code}, TradeStatus.NOT_FOUND) for code in ("ORDER_NOT_EXIST", "ORDERNOTEXIST")),
    ("close", 404, {"code": "ORDER_NOT_EXIST"}, TradeStatus.CLOSED),
    ("close", 202, {"code": "USER_PAYING"}, OutcomeUnknown),
    ("query", 429, {"code": "FREQUENCY_LIMITED"}, ProviderUnavailable),
    ("query_refund", 403, {"code": "RATELIMIT_EXCEEDED"}, ProviderUnavailable),
    ("native", 403, {}, "403"),  # without a code it is named by its status
    *((call, 403, {"code": "NO_AUTH"}, "NO_AUTH") for call in ("jsapi", "h5", "bill", "certificates")),
    *(
        (call, 200, {**REFUNDED, "status": state}, meaning)
        for call in ("refund", "query_refund")
        for state, meaning in (
            *(("PROCESSING", RefundStatus.PROCESSING), ("ABNORMAL", RefundStatus.STUCK)),
            ("CLOSED", RefundStatus.FAILED),
        )
    ),
    *(  # signed, but members are missing
        (call, 200, {} if value is None else {member: value}, OutcomeUnknown)
        for call, member in (("native", "code_url"), ("h5", "h5_url"), ("jsapi", "prepay_id"))
        for value in (None, "", 5)
    ),
    ("query", 200, {**PAID, "amount": []}, OutcomeUnknown),
    ("refund", 200, {"status": "SUCCESS", **NUMBERS}, OutcomeUnknown),
    ("refund", 200, {**REFUNDED, "amount": 5}, OutcomeUnknown),
    ("refund", 200, {**REFUNDED, "refund_id": None}, OutcomeUnknown),
    ("query_refund", 200, {**REFUNDED, "amount": {**AMOUNT, "refund": "990"}}, OutcomeUnknown),
]


@pytest.mark.parametrize(("call", "status", "document", "meaning"), WECHAT_SAYS)
def test_what_a_signed_answer_of_wechat_s_means(
    wechat: WeChatPay, company: Company, call: str, status: int, document: Any, meaning: Any
) -> None:
    company.answer = signed({"out_trade_no": NUMBER, **document}, status=status)
    assert learned(WECHAT_CALLS[call], wechat) == meaning


def test_requests_to_wechat(wechat: WeChatPay, company: Company) -> None:
    company.answer = unpaid(company)
    wechat.query(out_trade_no=NUMBER)
    path, headers = company.asked[0]
    assert path.startswith(f"/v3/pay/transactions/out-trade-no/{NUMBER}?mchid=")
    assert headers["Wechatpay-Serial"] == state.keys().public_key_id
    assert headers["Authorization"].startswith("WECHATPAY2-SHA256-RSA2048 mchid=")
    company.answer = signed({**REFUNDED, "status": "ABNORMAL"})
    for reason in (None, "changed mind"):
        made = refund(wechat, reason=reason or "")
        assert (made.message, made.facts) == ("ABNORMAL", ())
        assert json.loads(company.bodies[-1]).get("reason") == reason


METHODS = {
    "precreate": "alipay.trade.precreate",
    "query": "alipay.trade.query",
    "close": "alipay.trade.close",
    "refund": "alipay.trade.refund",
    "query_refund": "alipay.trade.fastpay.refund.query",
    "bill": "alipay.data.dataservice.bill.downloadurl.query",
}


TRADE = {"code": "10000", "out_trade_no": NUMBER, "trade_no": "20", "total_amount": "19.90"}


MISSING = {"code": "40001", "sub_code": "isv.missing-method", "sub_msg": "{no}"}


ALIPAY_SAYS: list[tuple[str, Any, Any]] = [
    ("query", {**TRADE, "trade_status": "WAIT_BUYER_PAY"}, TradeStatus.PENDING),
    ("query", {**TRADE, "trade_status": "TRADE_FINISHED"}, (TradeStatus.PAID, "paid")),
    ("query", {**TRADE, "trade_status": "TRADE_CLOSED"}, TradeStatus.CLOSED),
    (
        "query",
        {**TRADE, "trade_status": "TRADE_CLOSED", "send_pay_date": "2026-11-20 12:00:00"},
        (TradeStatus.PAID, "paid", "refunded"),
    ),
    ("query_refund", {"code": "40004", "sub_code": "ACQ.TRADE_NOT_EXIST"}, RefundStatus.NOT_FOUND),
    ("query_refund", {"code": "10000"}, RefundStatus.NOT_FOUND),
    *(("precreate", {**TRADE, "qr_code": value}, OutcomeUnknown) for value in ("", None, 5)),
    ("query", {"code": "10000", "out_trade_no": NUMBER}, OutcomeUnknown),
    ("precreate", {"code": "40004", "sub_code": "ACQ.TRADE_HAS_SUCCESS"}, "ACQ.TRADE_HAS_SUCCESS"),
    *((call, MISSING, "isv.missing-method") for call in ("query", "query_refund")),
    ("close", MISSING, OutcomeUnknown),  # nor may we ask what became of it
]


@pytest.mark.parametrize(("call", "document", "meaning"), ALIPAY_SAYS)
def test_what_a_signed_answer_of_alipay_s_means(
    alipay: Alipay, company: Company, call: str, document: Any, meaning: Any
) -> None:
    company.answer = alipay_says("error" if document is MISSING else METHODS[call], document)
    assert learned(ALIPAY_CALLS[call], alipay) == meaning


def unproven_by_alipay(method: str, address: str) -> Iterator[Unproven]:
    news = {
        "code": "10000",
        **NUMBERS,
        "out_request_no": REFUND_NUMBER,
        "qr_code": "https://qr.alipay.com/bax0",
        "trade_no": "20",
        "total_amount": "19.90",
        "trade_status": "TRADE_SUCCESS",
        "fund_change": "Y",
        "refund_fee": "9.90",
        "refund_amount": "9.90",
        "refund_status": "REFUND_SUCCESS",
        "bill_download_url": address,
    }
    name = method.replace(".", "_") + "_response"
    _, _, genuine = alipay_says(method, news)(b"")
    yield Unproven("forged", alipay_says(method, news, forge=True))
    yield Unproven("by another key", alipay_says(method, news, key=FOREIGN))
    yield Unproven("an answer to something else", alipay_says("alipay.trade.other", news))
    for sign in (None, 5, "", "签名", "QUJD"):
        yield Unproven(f"signature {sign}", said(200, json.dumps({name: news, "sign": sign}).encode()))
    yield Unproven("no signature", said(200, json.dumps({name: news}).encode()))
    yield Unproven("torn", said(200, genuine[:-20]))
    for body in (b"", b"\xff\xfe", b'"error_response"', b'{"error_response":5', b"null", b"<html>"):
        yield Unproven(f"body {body!r}", said(200, body))
    for status, body in ((302, b""), (502, genuine)):
        yield Unproven(f"status {status}", said(status, body, Location="http://127.0.0.1:1/"))
    for member in ("text", None, [{"code": "10000"}]):
        yield Unproven(f"signed {member}", alipay_says("error", member))
    for code in ("20000", 10000, None):
        yield Unproven(f"code {code}", alipay_says(method, {**news, "code": code}))
    for document in (
        {"code": "40004", "sub_code": "ACQ.SYSTEM_ERROR"},
        {"code": ["40004"], "sub_code": "ACQ.TRADE_NOT_EXIST"},
        {"sub_code": "ACQ.TRADE_NOT_EXIST"},
    ):
        yield Unproven(f"{document}", alipay_says(method, document))


@pytest.mark.parametrize("call", ALIPAY_CALLS)
def test_what_alipay_has_not_signed_proves_nothing(alipay: Alipay, company: Company, call: str) -> None:
    answers = [*unproven_by_alipay(METHODS[call], f"{company.url}/bill")]
    assert believed(company, ALIPAY_CALLS[call], alipay, answers) == []


def test_of_two_members_of_one_name_the_one_that_is_signed_is_read(alipay: Alipay, company: Company) -> None:
    genuine = '{"code":"40004","sub_code":"ACQ.TRADE_NOT_EXIST"}'
    forged = '{"code":"10000","trade_status":"TRADE_SUCCESS"}'
    sign = rsa.sign(genuine.encode(), state.keys().alipay)
    name = "alipay_trade_query_response"
    company.answer = said(200, f'{{"{name}":{genuine},"{name}":{forged},"sign":"{sign}"}}'.encode())
    assert alipay.query(out_trade_no=NUMBER).status is TradeStatus.NOT_FOUND
    company.answer = said(200, f'{{"{name}":{forged},"{name}":{genuine},"sign":"{sign}"}}'.encode())
    with pytest.raises(OutcomeUnknown):
        alipay.query(out_trade_no=NUMBER)


@pytest.mark.parametrize("member", ['{"a":"\\"}"}', '{"a":"\\\\"}', '{"a": [1, {"b": "]{"}], "c": "收据"}', "{}"])
def test_the_signed_part_is_taken_as_it_stands(member: str) -> None:
    assert signed_member(f'{{"x_response": {member},"sign":"s"}}', "x_response") == member
    assert signed_member(f'{{"sign":"s" , "x_response"  :\n{member}}}', "x_response") == member
