"""A genuine answer about our number in another amount: no word about our refund, and a payment that is held."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from payments.attempts import closing
from payments.models import Anomaly, Attempt
from payments.providers.answers import MISMATCHED
from payments.refunds import steps as refunds
from tests.integration.payments.conftest import number_of, payment_of, refund_asked
from tests.integration.payments.refunds.test_commands_in_doubt import (
    CHANNELS,
    PART_MINOR,
    OpenAttempt,
    Script,
    channels,
    company,
    not_closed,
    paid_by,
    prepared,
    script,
    taken,
)
from tests.unit.payments.providers.conftest import Says, alipay_says, signed, stripe_lists, stripe_says

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
    back = {"id": "re_1", "status": "succeeded", "amount": minor, "currency": "cny", "created": 1}
    return stripe_lists({**back, "metadata": ours, "payment_intent": {"id": number, "amount_received": 1990}})


@pytest.mark.parametrize(("channel", "first"), [*((c, "hung up") for c in CHANNELS), ("alipay", "taken")])
def test_the_success_of_a_refund_of_another_amount_is_no_word_about_ours(
    channel: str, first: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    payment = paid_by(prepared(open_attempt, channel))
    refund, acts = refund_asked(payment.pk, PART_MINOR), script(channel)
    before = taken(payment.attempts.get()) if first == "taken" else first
    acts.play(before, made(refund, 1990), made(refund, PART_MINOR))
    while len(acts.steps) > 1:
        assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (payment.reserved_minor, payment.refunded_minor) == (PART_MINOR, 0)
    assert refunds.submit_refund(refund.id).status == "succeeded"


CALLS = {"query": closing.query_attempt, "close": closing.close_attempt}
OURS = (1990, "CNY")


def paid_in(attempt: Attempt, minor: int, currency: str) -> Says:
    """Answer to a query: our number was paid, in this amount."""
    number = number_of(attempt)
    if attempt.channel == "alipay":
        trade = {"out_trade_no": attempt.out_trade_no, "trade_no": number, "trade_status": "TRADE_SUCCESS"}
        answer = {"code": "10000", **trade, "total_amount": f"{minor / 100:.2f}"}
        return alipay_says("alipay.trade.query", answer)
    if attempt.channel == "wechat":
        trade = {"out_trade_no": attempt.out_trade_no, "transaction_id": number, "trade_state": "SUCCESS"}
        return signed({**trade, "mchid": attempt.merchant, "amount": {"total": minor, "currency": currency}})
    amounts = {"amount": 1990, "amount_received": minor, "currency": currency.lower()}
    metadata = {"out_trade_no": attempt.out_trade_no}
    return stripe_says({"id": attempt.reference, "status": "succeeded", **amounts, "metadata": metadata})


def cases() -> Iterator[Any]:
    """Yield every call to each channel, and by turns another amount and another currency."""
    for number, (channel, call) in enumerate((channel, call) for channel in CHANNELS for call in CALLS):
        is_amount = channel == "alipay" or number % 3 == 0  # Alipay names no currency
        minor, currency = (1989, "CNY") if is_amount else (1990, "USD")
        yield pytest.param(channel, call, minor, currency, id=f"{channel}-{call}-{minor}-{currency}")


@pytest.mark.parametrize(("channel", "call", "minor", "currency"), [*cases()])
def test_it_is_counted_logged_and_held_and_never_credited(
    channel: str,
    call: str,
    minor: int,
    currency: str,
    open_attempt: OpenAttempt,
    script: Callable[[str], Script],
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = MISMATCHED.labels(channel)._value

    def asked(reference: str, *paid: Any) -> Attempt:
        attempt = prepared(open_attempt, channel, status="pending", reference=reference)
        refused = not_closed(attempt)[:1] if call == "close" and channel != "stripe" else []
        script(channel).play(*refused, paid_in(attempt, *paid))
        CALLS[call](attempt.pk)
        return attempt

    before = counted.get()
    with caplog.at_level(logging.ERROR):
        ours = asked("pi_1", *OURS)
        assert (payment_of(ours).paid_minor, counted.get(), caplog.text) == (1990, before, "")
        other = asked("pi_2", minor, currency)
    assert counted.get() == before + 1
    assert "is not about what was asked" in caplog.text
    assert payment_of(other).paid_minor == 0
    filed = Anomaly.objects.get()
    assert (filed.kind, filed.payment_id) == ("amount_mismatch", other.payment_id)
    assert (filed.detail["amount_minor"], filed.detail["currency"]) == (minor, currency)
