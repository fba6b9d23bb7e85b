"""A genuine answer to a question about our refund that names another amount is no word about it."""

from collections.abc import Callable
from typing import Any

import pytest

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


def made(refund: Any, minor: int) -> Says:
    """Answer to a query: it succeeded, with this amount."""
    attempt, number = refund.attempt, number_of(refund.attempt)
    ours = {"out_trade_no": attempt.out_trade_no, "out_refund_no": refund.out_refund_no}
    if attempt.channel == "alipay":
        said = {"out_trade_no": attempt.out_trade_no, "out_request_no": refund.out_refund_no, "trade_no": number}
        sums = {"total_amount": "19.90", "refund_amount": f"{minor / 100:.2f}", "refund_status": "REFUND_SUCCESS"}
        return alipay_says("alipay.trade.fastpay.refund.query", {"code": "10000", **said, **sums})
    if attempt.channel == "wechat":
        amount = {"refund": minor, "total": 1990, "currency": "CNY"}
        ids = {"refund_id": "5030", "transaction_id": number}
        return signed({**ours, **ids, "status": "SUCCESS", "amount": amount})
    back = {
        "id": "re_1",
        "status": "succeeded",
        "amount": minor,
        "currency": "cny",
        "created": 1,
        "metadata": ours,
    }
    data = [{**back, "payment_intent": {"id": number, "amount_received": 1990}}]
    return stripe_says({"object": "list", "data": data, "has_more": False, "url": "/v1/refunds"})


@pytest.mark.parametrize(("channel", "first"), [*((c, "hung up") for c in CHANNELS), ("alipay", "taken")])
def test_the_success_of_a_refund_of_another_amount_is_no_word_about_ours(
    channel: str, first: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    payment = paid_by(prepared(open_attempt, channel))
    refund, acts = requested(payment), script(channel)
    before = taken(payment.attempts.get()) if first == "taken" else first
    acts.play(before, made(refund, 1990), made(refund, PART_MINOR))
    while len(acts.steps) > 1:
        assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (payment.reserved_minor, payment.refunded_minor) == (PART_MINOR, 0)
    assert refunds.submit_refund(refund.id).status == "succeeded"
