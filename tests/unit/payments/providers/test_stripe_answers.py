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


def error(kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"type": kind, "message": "a sentence", **({"code": code} if code else {})}}


@pytest.mark.parametrize(
    ("status", "document", "code"),
    [
        (400, error(), "invalid_request_error"),
        (400, error("idempotency_error"), "idempotency_error"),
        (402, error("card_error", "card_declined"), "card_declined"),
        (404, error(code="resource_missing"), "resource_missing"),
    ],
)
def test_refusals_have_stripes_code(
    stripe: StripeIntents, company: Company, status: int, document: Any, code: str
) -> None:
    company.answer = stripe_says(document, status=status)
    is_known = code == "idempotency_error"  # a refund of this number, with other words, has left before
    with pytest.raises(ProviderRejected) as refused:
        create(stripe)
    assert (refused.value.code, refused.value.message) == (code, "a sentence")
    with pytest.raises(OutcomeUnknown if is_known else ProviderRejected, match=code):
        refund(stripe)
    assert len(company.asked) == 2  # never sent again by the library itself


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (500, error("api_error")),
        (503, b"<html>busy</html>"),
        (409, error("idempotency_error", "idempotency_key_in_use")),
        (302, b""),
        (404, {"message": "a proxy says no"}),
        (200, b""),
        (200, b"\xff"),
        (200, {}),
        (200, {**INTENT, "next_action": {"type": "use_stripe_sdk"}}),
        (200, {**INTENT, "next_action": {"type": "redirect_to_url", "redirect_to_url": {"url": None}}}),
    ],
)
def test_an_answer_that_says_nothing_leaves_it_unknown(
    stripe: StripeIntents, company: Company, status: int, document: Any
) -> None:
    company.answer = stripe_says(document, status=status)
    with pytest.raises(OutcomeUnknown):
        create(stripe)
    assert len(company.asked) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": [NUMBER]},
        {"amount_received": None},
        {"status": None},
    ],
)
def test_an_intent_of_another_shape(stripe: StripeIntents, company: Company, changed: dict[str, Any]) -> None:
    company.answer = stripe_says({**INTENT, **changed})
    for call in (stripe.query, stripe.close):
        with pytest.raises(OutcomeUnknown):
            call(out_trade_no=NUMBER, reference="pi_1")


def test_a_status_that_nobody_knows_ends_nothing(stripe: StripeIntents, company: Company) -> None:
    company.answer = stripe_says({**INTENT, "status": "pondering"})
    assert stripe.query(out_trade_no=NUMBER, reference="pi_1").status is TradeStatus.PENDING


def test_a_reference_that_stripe_forgot_is_no_unknown_trade(stripe: StripeIntents, company: Company) -> None:
    company.answer = stripe_says(error(code="resource_missing"), status=404)
    for call in (stripe.query, stripe.close):
        with pytest.raises(ProviderRejected, match="resource_missing"):
            call(out_trade_no=NUMBER, reference="pi_1")


def test_an_intent_whose_payment_failed_is_canceled_to_make_room(stripe: StripeIntents, company: Company) -> None:
    failed = {**INTENT, "status": "requires_payment_method", "amount_received": 0}
    answers = iter([failed, {**failed, "status": "canceled"}])
    company.answer = lambda _: (200, {}, json.dumps(next(answers)).encode())
    trade = stripe.query(out_trade_no=NUMBER, reference="pi_1")
    assert (trade.status, [fact.kind for fact in trade.facts]) == (TradeStatus.CLOSED, [FactKind.CLOSED])
    assert company.asked[1][0] == "/v1/payment_intents/pi_1/cancel"


def test_a_refused_cancel_hides_no_payment(stripe: StripeIntents, company: Company) -> None:
    refused = stripe_says(error(code="something_new"), status=400)
    answers = [stripe_says({**INTENT, "status": "requires_action"}), refused, stripe_says(INTENT)]

    def answer(body: bytes) -> Any:
        return answers.pop(0)(body)

    company.answer = answer
    with pytest.raises(ProviderRejected, match="something_new"):
        stripe.close(out_trade_no=NUMBER, reference="pi_1")
    trade = stripe.close(out_trade_no=NUMBER, reference="pi_1")
    assert (trade.status, [fact.kind for fact in trade.facts]) == (TradeStatus.PAID, [FactKind.PAID])


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
    """It has no fact, but a line of the bill from the beginning."""
    made = {**MADE, "status": status}
    company.answer = stripe_says({**made, "payment_intent": "pi_1"})
    assert (refund(stripe).status, refund(stripe).facts) == (meaning, ())
    unkeepable = {**made, "metadata": {"out_trade_no": NUMBER, "out_refund_no": "r" * 65}}
    for source, number in ((made, REFUND_NUMBER), (unkeepable, "")):
        entry = {"id": "txn_1", "type": "refund", "created": 1_790_000_000, "source": source}
        line = bill_line(entry)
        assert (line.refund_status, line.out_trade_no, line.out_refund_no) == (meaning, NUMBER, number)


def test_a_refund_whose_number_says_no_age_is_asked_for_first(stripe: StripeIntents, company: Company) -> None:
    """The Idempotency-Key of an old number may be forgotten; then only the list keeps from moving it twice."""
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
    """Those about keys are in tests/system/secrets."""
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
