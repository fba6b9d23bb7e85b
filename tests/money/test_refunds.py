"""Rows M13–M16: refunds that race, that a person makes at the provider, that the provider refuses."""

import pytest

from payments.models import Observation, Payment, Refund
from tests.money.till import CHANNELS, PRICE_MINOR, Till
from tests.threads import at_once

EVERY = pytest.mark.parametrize("channel", CHANNELS)

IN_PART = ("paid", "partially_refunded", PRICE_MINOR, 990)
BY_HAND = {"wechat": "notification", "alipay": "bill", "stripe": "bill"}


@EVERY
def test_m13_partial_refunds_race(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    answers = at_once(*[lambda: till.refund(attempt, 600)] * 8)
    refused = [answer.json()["code"] for answer in answers if answer.status_code == 409]
    assert refused == ["refund_exceeds_paid"] * 5
    assert {answer.status_code for answer in answers} <= {201, 202, 409}
    till.settle()
    assert till.state(attempt) == ("paid", "partially_refunded", PRICE_MINOR, 1800)
    assert (till.moved(attempt), Refund.objects.count()) == ((PRICE_MINOR, 1800), 3)
    assert till.refund(attempt, 191).status_code == 409
    assert till.refund(attempt, 190).status_code == 201
    till.settle()
    assert till.state(attempt) == ("refunded", "refunded", PRICE_MINOR, PRICE_MINOR)
    assert till.anomalies() == []
    till.witness()


@EVERY
def test_m14_somebody_refunds_by_hand(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    till.refund_by_hand(attempt, 990)
    till.settle()
    if BY_HAND[channel] == "bill":
        # Alipay's notification does not tell which refund of how much; Stripe's carries no number of ours
        assert till.state(attempt)[3] == 0
        till.compare_today(channel)
    assert (till.state(attempt), Refund.objects.count()) == (IN_PART, 0)
    assert Observation.objects.get(kind="refunded").source == BY_HAND[channel]
    till.witness()
    assert till.refund(attempt, 1001).json()["code"] == "refund_exceeds_paid"
    assert till.refund(attempt, 1000).status_code == 201
    till.settle()
    assert till.state(attempt)[0] == "refunded"
    compared = till.compare_today(channel)
    assert not compared.differences.filter(out_trade_no=attempt.out_trade_no).exists()
    assert till.anomalies() == []
    till.witness()


@EVERY
def test_m15_the_provider_refuses_a_refund(till: Till, channel: str) -> None:
    """Because somebody gave the money back by hand, and nobody told us."""
    attempt = till.bought(channel)
    till.sandbox.faults(drop_rate=1)
    till.refund_by_hand(attempt, 1500)
    answer = till.refund(attempt, 990)
    assert (answer.status_code, answer.json()["code"]) == (409, "refund_refused")
    assert (Payment.objects.get().reserved_minor, Refund.objects.get().status) == (0, "failed")
    assert till.anomalies() == [("refund_failed", False)]
    assert till.refund(attempt, 490).status_code == 201
    till.settle()
    till.compare_today(channel)
    till.settle()
    assert till.state(attempt)[0] == "refunded"
    assert till.moved(attempt) == (PRICE_MINOR, 1990)
    till.witness()
