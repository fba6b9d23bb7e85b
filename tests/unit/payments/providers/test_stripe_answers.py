"""What an answer of Stripe's, or none, lets us know; and what the settings must be."""

import json
from datetime import date
from typing import Any

import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected
from payments.providers import registry
from payments.providers.actions import NextActionType, PayMethod
from payments.providers.base import FactKind, RefundStatus, TradeStatus
from payments.providers.stripe.bill import bill_line
from payments.providers.stripe.client import API_VERSION, StripeIntents
from tests.unit.payments.providers.conftest import NUMBER, Company, create, stripe_lists, stripe_says
from tests.unit.payments.providers.conftest import refund as give_back
from tests.unit.payments.providers.test_answers import learned

REFUND_NUMBER = new_id().hex  # one that says how old it is
SETTINGS = {"API_URL": "http://127.0.0.1:1", "SECRET_KEY": "sk_test_1", "WEBHOOK_SECRET": "whsec_1"}
INTENT = {
    "id": "pi_1",
    "status": "succeeded",
    "currency": "cny",
    "amount": 1990,
    "amount_received": 1990,
    "metadata": {"out_trade_no": NUMBER},
}

MADE = {
    "id": "re_1",
    "status": "succeeded",
    "amount": 990,
    "currency": "cny",
    "created": 1_790_000_000,
    "metadata": {"out_trade_no": NUMBER, "out_refund_no": REFUND_NUMBER},
}


def refund(stripe: StripeIntents, **changed: Any) -> Any:
    return give_back(stripe, **{"out_refund_no": REFUND_NUMBER, "reference": "pi_1", **changed})


def test_what_a_call_carries_and_what_it_keeps_to_itself(stripe: StripeIntents, company: Company) -> None:
    action = {"type": "redirect_to_url", "redirect_to_url": {"url": "https://x"}}
    company.answer = stripe_says({**INTENT, "status": "requires_action", "next_action": action})
    action = create(stripe, method=PayMethod.INTENT)
    assert (action.type, action.url, action.reference) == (NextActionType.REDIRECT, "https://x", "pi_1")
    ((path, headers),) = company.asked
    given = {name.lower(): value for name, value in headers.items()}
    assert path == "/v1/payment_intents"
    assert (given["authorization"], given["idempotency-key"]) == (f"Bearer {stripe._secret_key}", NUMBER)
    assert (given["stripe-version"], given["user-agent"]) == (API_VERSION, "payonce")
    assert not [name for name in given if name.startswith("x-stripe")]
    assert b"confirm=true" in company.bodies[0]


def test_an_intent_whose_payment_failed_is_canceled_to_make_room(stripe: StripeIntents, company: Company) -> None:
    failed = {**INTENT, "status": "requires_payment_method", "amount_received": 0}
    answers = iter([failed, {**failed, "status": "canceled"}])
    company.answer = lambda _: (200, {}, json.dumps(next(answers)).encode())
    trade = stripe.query(out_trade_no=NUMBER, reference="pi_1")
    assert (trade.status, [fact.kind for fact in trade.facts]) == (TradeStatus.CLOSED, [FactKind.CLOSED])
    assert company.asked[1][0] == "/v1/payment_intents/pi_1/cancel"


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        ("pending", RefundStatus.PROCESSING),
        ("requires_action", RefundStatus.PROCESSING),
        (None, RefundStatus.PROCESSING),
        ("failed", RefundStatus.FAILED),
        ("canceled", RefundStatus.FAILED),
    ],
)
def test_a_refund_that_moved_no_money(
    stripe: StripeIntents, company: Company, status: str | None, meaning: RefundStatus
) -> None:
    made = {**MADE, "status": status}
    company.answer = stripe_says({**made, "payment_intent": "pi_1"})
    assert (refund(stripe).status, refund(stripe).facts) == (meaning, ())
    unkeepable = {**made, "metadata": {"out_trade_no": NUMBER, "out_refund_no": "r" * 65}}
    for source, number in ((made, REFUND_NUMBER), (unkeepable, "")):
        entry = {"id": "txn_1", "type": "refund", "created": 1_790_000_000, "source": source}
        line = bill_line(entry)
        assert (line.refund_status, line.out_trade_no, line.out_refund_no) == (meaning, NUMBER, number)


def test_a_refund_whose_number_says_no_age_is_asked_for_first(stripe: StripeIntents, company: Company) -> None:
    numbers = {"out_trade_no": NUMBER, "out_refund_no": "f" * 32}
    company.answer = stripe_lists({**MADE, "payment_intent": INTENT, "metadata": numbers})
    result = refund(stripe, out_refund_no="f" * 32)
    assert (result.status, result.facts[0].provider_txn_id) == ("succeeded", "re_1")
    assert result.facts[0].paid_minor == 1990
    assert len(company.asked) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"METHOD": "card"}, "STRIPE_METHOD must be one of alipay, wechat_pay, not 'card'"),
        ({"SECRET_KEY": " ,"}, "STRIPE_SECRET_KEY is empty"),
        ({"SECRET_KEY_FILE": "/nowhere"}, "STRIPE_SECRET_KEY and STRIPE_SECRET_KEY_FILE are both set"),
    ],
)
def test_a_mistake_is_reported_with_the_name_of_its_setting(changed: dict[str, str], why: str) -> None:
    with pytest.raises(registry.ConfigError, match=why):
        registry.build({"stripe": {**SETTINGS, **changed}})


def test_what_came_back_of_a_refund_is_a_line_that_pays_nothing(stripe: StripeIntents, company: Company) -> None:
    entry = {"id": "txn_1", "type": "refund_failure", "created": 1_790_000_000, "amount": 990, "source": MADE}

    def answer(body: bytes) -> Any:
        found = [entry] if "type=refund_failure" in company.asked[-1][0] else []
        return stripe_lists(*found)(body)

    company.answer = answer
    (line,) = stripe.bill(day=date(2026, 9, 21))
    assert (line.kind, line.out_trade_no, line.provider_txn_id) == (FactKind.PAID, "", "txn_1")
    assert (line.out_refund_no, line.amount_minor, line.currency) == (REFUND_NUMBER, 990, "CNY")
    assert line.takes_back == "re_1"


def error(kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"type": kind, "message": "a sentence", **({"code": code} if code else {})}}


CALLS = {
    "create": create,
    "refund": refund,
    "query": lambda stripe: stripe.query(out_trade_no=NUMBER, reference="pi_1"),
    "close": lambda stripe: stripe.close(out_trade_no=NUMBER, reference="pi_1"),
}
BOTH = ("query", "close")
SAYS: list[tuple[str, int, Any, Any]] = [
    *((call, 400, error(), "invalid_request_error") for call in ("create", "refund")),
    ("create", 400, error("idempotency_error"), "idempotency_error"),
    ("refund", 400, error("idempotency_error"), OutcomeUnknown),  # one of this number has left before
    *((call, 402, error("card_error", "card_declined"), "card_declined") for call in ("create", "refund")),
    *((call, 404, error(code="resource_missing"), "resource_missing") for call in CALLS),
    ("create", 500, error("api_error"), OutcomeUnknown),
    ("create", 503, b"<html>busy</html>", OutcomeUnknown),
    ("create", 409, error("idempotency_error", "idempotency_key_in_use"), OutcomeUnknown),
    ("create", 302, b"", OutcomeUnknown),
    ("create", 404, {"message": "a proxy says no"}, OutcomeUnknown),
    *(("create", 200, body, OutcomeUnknown) for body in (b"", b"\xff", {})),
    ("create", 200, {**INTENT, "next_action": {"type": "use_stripe_sdk"}}, OutcomeUnknown),
    (
        *("create", 200, {**INTENT, "next_action": {"type": "redirect_to_url", "redirect_to_url": {"url": None}}}),
        OutcomeUnknown,
    ),
    *((call, 200, {**INTENT, "metadata": [NUMBER]}, OutcomeUnknown) for call in BOTH),
    *((call, 200, {**INTENT, "amount_received": None}, OutcomeUnknown) for call in BOTH),
    *((call, 200, {**INTENT, "status": None}, OutcomeUnknown) for call in BOTH),
    ("query", 200, {**INTENT, "status": "pondering"}, TradeStatus.PENDING),
]


@pytest.mark.parametrize(("call", "status", "document", "meaning"), SAYS)
def test_what_an_answer_means(
    stripe: StripeIntents, company: Company, call: str, status: int, document: Any, meaning: Any
) -> None:
    """A refusal has Stripe's code, and the library itself sends nothing again."""
    company.answer = stripe_says(document, status=status)
    assert learned(CALLS[call], stripe) == meaning
    assert len(company.asked) == 1


def test_a_refused_cancel_hides_no_payment(stripe: StripeIntents, company: Company) -> None:
    refused = stripe_says(error(code="something_new"), status=400)
    answers = [stripe_says({**INTENT, "status": "requires_action"}), refused, stripe_says(INTENT)]

    def answer(body: bytes) -> Any:
        return answers.pop(0)(body)

    company.answer = answer
    with pytest.raises(ProviderRejected, match="something_new: a sentence"):
        CALLS["close"](stripe)
    trade = CALLS["close"](stripe)
    assert (trade.status, [fact.kind for fact in trade.facts]) == (TradeStatus.PAID, [FactKind.PAID])
