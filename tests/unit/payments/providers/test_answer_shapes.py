"""Answers of a shape that nobody documented: whatever stands in them, the outcome is unknown and never a crash."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected
from payments.providers import rsa
from payments.providers.alipay.client import Alipay
from payments.providers.base import Provider, RefundStatus, TradeStatus
from payments.providers.wechat.client import WeChatPay
from payments.sandbox import state
from tests.unit.payments.providers.conftest import Company, alipay_says, signed

NUMBER, REFUND = "a" * 32, "b" * 32
CALLS: dict[str, Callable[[Provider], Any]] = {
    "create": lambda provider: provider.create(
        out_trade_no=NUMBER,
        amount_minor=1990,
        currency="CNY",
        description="Mug",
        notify_url="http://127.0.0.1:1/n",
        return_url="http://127.0.0.1:1/r",
        expires_at=datetime(2026, 11, 20, tzinfo=UTC),
    ),
    "query": lambda provider: provider.query(out_trade_no=NUMBER),
    "close": lambda provider: provider.close(out_trade_no=NUMBER),
    "refund": lambda provider: refund(provider, reason="changed mind"),
    "query_refund": lambda provider: provider.query_refund(out_trade_no=NUMBER, out_refund_no=REFUND),
}


def refund(provider: Provider, *, reason: str = "") -> Any:
    return provider.refund(
        out_trade_no=NUMBER,
        out_refund_no=REFUND,
        amount_minor=990,
        paid_minor=1990,
        currency="CNY",
        reason=reason,
        notify_url="http://127.0.0.1:1/n",
    )


@pytest.mark.parametrize("call", CALLS)
def test_wechat_signed_but_no_object(wechat: WeChatPay, company: Company, call: str) -> None:
    for document in ([], "text", 5, None, b"\xff", b"{", b"[" * 20_000, [{"code": "ORDER_NOT_EXIST"}]):
        for status in (200, 400, 404):
            company.answer = signed(document, status=status)
            with pytest.raises(OutcomeUnknown):
                CALLS[call](wechat)


@pytest.mark.parametrize("call", CALLS)
def test_wechat_unsigned(wechat: WeChatPay, company: Company, call: str) -> None:
    told = b'{"code":"ORDER_NOT_EXIST","code_url":"weixin://x","status":"SUCCESS"}'
    for status in (200, 204, 400, 401, 403, 404, 429, 500, 503):
        company.answer = lambda _, status=status: (status, {}, b"" if status == 204 else told)  # type: ignore[misc]
        with pytest.raises(OutcomeUnknown):
            CALLS[call](wechat)


@pytest.mark.parametrize(
    ("call", "document"),
    [
        ("create", {}),
        ("create", {"code_url": ""}),
        ("create", {"code_url": 5}),
        ("query", {"trade_state": "SUCCESS", "amount": []}),
        ("refund", {"status": "SUCCESS"}),
        ("refund", {"status": "SUCCESS", "amount": 5}),
        ("query_refund", {"status": "SUCCESS", "amount": {"refund": "990", "total": 1990}}),
    ],
)
def test_wechat_signed_but_members_missing(wechat: WeChatPay, company: Company, call: str, document: Any) -> None:
    company.answer = signed(document)
    with pytest.raises(OutcomeUnknown):
        CALLS[call](wechat)


def test_wechat_signed_server_errors_are_unknown_too(wechat: WeChatPay, company: Company) -> None:
    company.answer = signed({"code": "SYSTEM_ERROR"}, status=500)
    with pytest.raises(OutcomeUnknown, match="500"):
        CALLS["refund"](wechat)


def test_a_refusal_without_a_code_is_named_by_its_status(wechat: WeChatPay, company: Company) -> None:
    company.answer = signed({}, status=403)
    with pytest.raises(ProviderRejected) as caught:
        CALLS["create"](wechat)
    assert (caught.value.code, caught.value.message) == ("403", "")


@pytest.mark.parametrize("call", ["query", "close", "refund", "query_refund"])
def test_alipay_signed_but_no_object(alipay: Alipay, company: Company, call: str) -> None:
    for member in ([], "text", 5, None, [{"code": "10000"}]):
        _, headers, body = alipay_says("error", member)(b"")
        for status in (200, 404):
            company.answer = lambda _, status=status, headers=headers, body=body: (status, headers, body)  # type: ignore[misc]
            with pytest.raises(OutcomeUnknown):
                CALLS[call](alipay)


@pytest.mark.parametrize("sign", [None, 5, [], {}, "", "签名", "QUJD"])
def test_alipay_with_a_signature_that_is_none(alipay: Alipay, company: Company, sign: Any) -> None:
    answer = {"alipay_trade_query_response": {"code": "10000", "trade_status": "TRADE_SUCCESS"}, "sign": sign}
    company.answer = lambda _: (200, {}, json.dumps(answer).encode())
    with pytest.raises(OutcomeUnknown):
        CALLS["query"](alipay)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'"error_response"', b'{"error_response":5', b"5", b"null"])
def test_alipay_torn(alipay: Alipay, company: Company, body: bytes) -> None:
    company.answer = lambda _: (200, {}, body)
    with pytest.raises(OutcomeUnknown):
        CALLS["refund"](alipay)


@pytest.mark.parametrize("status", [302, 500, 502])
def test_alipay_statuses_that_prove_nothing(alipay: Alipay, company: Company, status: int) -> None:
    company.answer = lambda _: (status, {"Location": "http://127.0.0.1:1/"}, b"")
    with pytest.raises(OutcomeUnknown):
        CALLS["close"](alipay)


def test_alipay_s_signed_member_counts_and_no_twin_of_it(alipay: Alipay, company: Company) -> None:
    """Two members of one name: what is verified is what is read, so a forged twin never decides."""
    genuine = '{"code":"40004","sub_code":"ACQ.TRADE_NOT_EXIST"}'
    forged = '{"code":"10000","trade_status":"TRADE_SUCCESS"}'
    sign = rsa.sign(genuine.encode(), state.keys().alipay)
    name = "alipay_trade_query_response"
    company.answer = lambda _: (200, {}, f'{{"{name}":{genuine},"{name}":{forged},"sign":"{sign}"}}'.encode())
    assert alipay.query(out_trade_no=NUMBER).status is TradeStatus.NOT_FOUND
    company.answer = lambda _: (200, {}, f'{{"{name}":{forged},"{name}":{genuine},"sign":"{sign}"}}'.encode())
    with pytest.raises(OutcomeUnknown):
        alipay.query(out_trade_no=NUMBER)


def test_a_refund_that_is_not_done_yet_and_one_without_a_reason(wechat: WeChatPay, company: Company) -> None:
    asked: list[dict[str, Any]] = []

    def processing(body: bytes) -> Any:
        asked.append(json.loads(body))
        amount = {"refund": 990, "total": 1990, "currency": "CNY"}
        return signed({"status": "PROCESSING", "out_trade_no": NUMBER, "out_refund_no": REFUND, "amount": amount})(
            body
        )

    company.answer = processing
    for reason in ("", "changed mind"):
        told = refund(wechat, reason=reason)
        assert (told.status, told.facts) == (RefundStatus.PROCESSING, ())
    assert [body.get("reason") for body in asked] == [None, "changed mind"]


def test_a_key_of_another_length_is_refused(wechat: WeChatPay) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        WeChatPay(replace(wechat.config, api_v3_keys=(b"short",)))
