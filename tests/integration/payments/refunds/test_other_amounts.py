"""A genuine answer in another amount: the payment is held and never credited."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from payments.attempts import closing
from payments.models import Anomaly, Attempt
from payments.providers.answers import MISMATCHED
from tests.integration.payments.conftest import number_of, payment_of
from tests.integration.payments.refunds.test_commands_in_doubt import (
    OpenAttempt,
    Script,
    channels,
    company,
    not_closed,
    prepared,
    script,
)
from tests.unit.payments.providers.conftest import Says, alipay_says, signed, stripe_says

__all__ = ["channels", "company", "script"]


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


@pytest.mark.parametrize(
    ("channel", "minor", "currency"),
    [("wechat", 1989, "CNY"), ("wechat", 1990, "USD"), ("alipay", 1989, "CNY"), ("stripe", 1990, "USD")],
)
@pytest.mark.parametrize("call", [closing.query_attempt, closing.close_attempt])
def test_it_is_counted_logged_and_held_and_never_credited(
    channel: str,
    minor: int,
    currency: str,
    call: Callable[..., Any],
    open_attempt: OpenAttempt,
    script: Callable[[str], Script],
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = MISMATCHED.labels(channel)._value

    def asked(reference: str, *paid: Any) -> Attempt:
        attempt = prepared(open_attempt, channel, status="pending", reference=reference)
        refused = not_closed(attempt)[:1] if call is closing.close_attempt and channel != "stripe" else []
        script(channel).play(*refused, paid_in(attempt, *paid))
        call(attempt.pk)
        return attempt

    before = counted.get()
    with caplog.at_level(logging.ERROR):
        ours = asked("pi_1", 1990, "CNY")
        assert (payment_of(ours).paid_minor, counted.get(), caplog.text) == (1990, before, "")
        other = asked("pi_2", minor, currency)
    assert counted.get() == before + 1
    assert "is not about what was asked" in caplog.text
    assert payment_of(other).paid_minor == 0
    filed = Anomaly.objects.get()
    assert (filed.kind, filed.payment_id) == ("amount_mismatch", other.payment_id)
    assert (filed.detail["amount_minor"], filed.detail["currency"]) == (minor, currency)
