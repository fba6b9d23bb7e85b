"""Genuine answers about another trade, refund or amount leave no trace in our books."""

from collections.abc import Callable
from typing import Any

import pytest

from payments.attempts import closing
from payments.errors import OutcomeUnknown
from payments.models import Anomaly, Attempt, Observation, Refund
from payments.refunds import steps as refunds
from tests.integration.payments.conftest import number_of
from tests.integration.payments.refunds.test_commands_in_doubt import (
    CHANNELS,
    PART_MINOR,
    OpenAttempt,
    Says,
    Script,
    channels,
    company,
    not_closed,
    paid_by,
    prepared,
    requested,
    script,
    stripe_says,
    taken,
)
from tests.unit.payments.providers.conftest import alipay_says, signed

pytestmark = pytest.mark.django_db(transaction=True)

__all__ = ["channels", "company", "script"]

OTHER = "f" * 32


def made(refund: Refund, **changed: Any) -> Says:
    """Answer to a query, that our refund has succeeded; with members as Alipay calls them changed."""
    attempt = refund.attempt
    told = {
        "out_trade_no": attempt.out_trade_no,
        "out_request_no": refund.out_refund_no,
        "refund_amount": "5.00",
        **changed,
    }
    amount_minor = int(told["refund_amount"].replace(".", ""))
    numbers = {"out_trade_no": told["out_trade_no"], "out_refund_no": told["out_request_no"]}
    if attempt.channel == "alipay":
        more = {"trade_no": number_of(attempt), "total_amount": "19.90", "refund_status": "REFUND_SUCCESS"}
        return alipay_says("alipay.trade.fastpay.refund.query", {"code": "10000", **told, **more})
    if attempt.channel == "wechat":
        amount = {"refund": amount_minor, "total": 1990, "currency": "CNY"}
        ids = {"refund_id": "5030", "transaction_id": number_of(attempt)}
        return signed({**numbers, **ids, "status": "SUCCESS", "amount": amount})
    intent = {"id": number_of(attempt), "amount_received": 1990}
    document = {"id": "re_1", "status": "succeeded", "amount": amount_minor, "currency": "cny", "created": 1}
    data = [{**document, "payment_intent": intent, "metadata": numbers}]
    return stripe_says({"object": "list", "data": data, "has_more": False, "url": "/v1/refunds"})


@pytest.mark.parametrize("changed", [{"out_trade_no": OTHER}, {"refund_amount": "19.90"}])
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_success_of_another_refund_does_not_end_ours(
    channel: str, changed: dict[str, str], open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    payment = paid_by(prepared(open_attempt, channel))
    refund, acts = requested(payment), script(channel)
    acts.play("hung up", made(refund, **changed), made(refund))
    for _ in range(2):
        assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (payment.reserved_minor, payment.refunded_minor) == (PART_MINOR, 0)
    assert refunds.submit_refund(refund.id).status == "succeeded"
    payment.refresh_from_db()
    assert (payment.reserved_minor, payment.refunded_minor, acts.steps) == (0, PART_MINOR, [])


def test_the_refund_of_another_trade_at_alipay_makes_no_second_charge_of_ours(
    open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    """Seen: its `trade_no` was taken for a second charge under our number, and given back by policy."""
    payment = paid_by(prepared(open_attempt, "alipay"))
    refund, acts = requested(payment), script("alipay")
    foreign = {"out_trade_no": OTHER, "trade_no": "2026000000000000000000000001"}
    acts.play(
        alipay_says("alipay.trade.refund", {"code": "10000", **foreign, "fund_change": "Y", "refund_fee": "5.00"})
    )
    assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (payment.status, payment.reserved_minor) == ("succeeded", PART_MINOR)
    assert (Refund.objects.count(), Observation.objects.count(), Anomaly.objects.count()) == (1, 1, 0)


def test_the_query_after_a_refund_that_alipay_took_is_compared_too(
    open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt = prepared(open_attempt, "alipay")
    payment = paid_by(attempt)
    refund, acts = requested(payment), script("alipay")
    acts.play(taken(attempt), made(refund, refund_amount="19.90"))
    assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (payment.reserved_minor, payment.refunded_minor) == (PART_MINOR, 0)


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_end_of_another_trade_does_not_close_ours(
    channel: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt = prepared(open_attempt, channel, status="pending", reference="pi_1")
    ended = {
        "wechat": lambda: signed({"trade_state": "CLOSED", "out_trade_no": OTHER}),
        "alipay": lambda: alipay_says(
            "alipay.trade.query", {"code": "10000", "trade_status": "TRADE_CLOSED", "out_trade_no": OTHER}
        ),
        "stripe": lambda: stripe_says({"id": "pi_1", "status": "canceled", "metadata": {"out_trade_no": OTHER}}),
    }[channel]
    acts = script(channel)
    for before in ([], not_closed(attempt)):
        acts.play(*before, ended())
        with pytest.raises(OutcomeUnknown):
            (closing.close_attempt if before else closing.query_attempt)(attempt.id)
        attempt.refresh_from_db()
        assert (attempt.status, acts.steps, Observation.objects.count()) == ("pending", [], 0)
    assert Attempt.objects.get().is_live
