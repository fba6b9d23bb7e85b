"""Rows M13–M15, M20–M22, M24: refunds that race, are refused or stuck; and disputes."""

import pytest

from payments.models import Anomaly, Notification, Observation, Payment, Refund
from payments.operations.figures import trial_balance
from tests.system.money.till import EVERY, IN_PART, PAID, PRICE_MINOR, REFUNDED, Till
from tests.threads import at_once

BY_HAND = {"wechat": "notification", "alipay": "bill", "stripe": "bill"}


@EVERY
def test_m13_partial_refunds_race(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    answers = at_once(*[lambda: till.refund(attempt, 600)] * 8)
    refused = [answer.json()["code"] for answer in answers if answer.status_code == 409]
    assert refused == ["refund_exceeds_paid"] * 5
    assert {answer.status_code for answer in answers} <= {201, 202, 409}
    till.ends(attempt, ("paid", "partially_refunded", PRICE_MINOR, 1800))
    assert Refund.objects.count() == 3
    assert till.refund(attempt, 191).status_code == 409
    assert till.refund(attempt, 190).status_code == 201
    till.ends(attempt, REFUNDED)


@EVERY
def test_m14_somebody_refunds_by_hand(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    till.refund_by_hand(attempt, 990)
    till.settle()
    if BY_HAND[channel] == "bill":
        # Alipay's notification does not say which refund of how much; Stripe's carries no number of ours
        assert till.state(attempt)[3] == 0
        till.compare_today(channel)
    assert (till.state(attempt), Refund.objects.count()) == (IN_PART, 0)
    assert Observation.objects.get(kind="refunded").source == BY_HAND[channel]
    till.witness()
    assert till.refund(attempt, 1001).json()["code"] == "refund_exceeds_paid"
    assert till.refund(attempt, 1000).status_code == 201
    till.settle()
    till.bill_agrees(attempt)
    till.ends(attempt, REFUNDED)


@pytest.mark.parametrize(
    ("before", "ours"),
    [([], False), ([990], True), ([490, 500], False)],
    ids=["at once", "after one of ours", "after two by hand"],
)
def test_m14_all_of_it_goes_back_by_hand_and_alipay_reports_it_at_once(
    till: Till, before: list[int], ours: bool
) -> None:
    attempt = till.bought("alipay")
    for amount_minor in before:
        if ours:
            assert till.refund(attempt, amount_minor).status_code == 201
        else:
            till.refund_by_hand(attempt, amount_minor)
    till.refund_by_hand(attempt, PRICE_MINOR - sum(before))
    till.ends(attempt, REFUNDED)
    till.bill_agrees(attempt)
    till.ends(attempt, REFUNDED)


def test_m14_all_of_it_goes_back_by_hand_while_a_refund_of_ours_is_in_doubt(till: Till) -> None:
    """Only our refund's own answer says which of both moved what; the bill counts the rest."""
    attempt = till.bought("alipay")
    till.sandbox.faults(timeout_after_success=1)
    assert till.refund(attempt, 990).status_code == 202
    till.refund_by_hand(attempt, 1000)
    till.all_notified()
    assert till.state(attempt)[3] == 0
    till.settle()
    assert till.state(attempt) == IN_PART
    till.compare_today("alipay")
    till.ends(attempt, REFUNDED)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("status", ["won", "lost"])
def test_m24_a_payment_is_disputed(till: Till, status: str, copies: int) -> None:
    """Stripe takes the money at once; the timer of the bills finds nothing else."""
    attempt = till.bought("stripe")
    till.sandbox.faults(duplicates=copies, reorder=True)
    for step in ("open", status):
        till.dispute(attempt, step)
    till.settle()
    assert (till.state(attempt), till.anomalies()) == (PAID, [("disputed", False)])
    known = Anomaly.objects.get().detail
    assert (known["status"], known["taken_minor"]) == (status, PRICE_MINOR)
    books = {row.account: row.balance_minor for row in trial_balance()}
    assert books["disputed"] == PRICE_MINOR * (status == "lost")
    compared = till.compare_today("stripe")
    assert not compared.differences.filter(payment=attempt.payment_id).exists()
    assert {row.account: row.balance_minor for row in trial_balance()} == books
    if status == "won":
        till.witness()


@EVERY
def test_m15_the_provider_refuses_a_refund(till: Till, channel: str) -> None:
    """Because somebody gave the money back by hand, and nobody notified us."""
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
    till.ends(attempt, REFUNDED, ("refund_failed", False))


def open_still(status: str) -> None:
    """Nothing of it is free for another refund."""
    assert (Payment.objects.get().reserved_minor, Refund.objects.get().status) == (990, status)


def test_m20_the_provider_asks_for_fewer_refunds(till: Till) -> None:
    attempt = till.bought("wechat")
    till.sandbox.faults(refund_429=True)
    for _ in range(2):
        assert till.refund(attempt, 990, key="refund").status_code in (202, 503)
    till.pass_time()
    open_still("requested")
    till.sandbox.faults(refund_429=False)
    till.ends(attempt, IN_PART)
    assert till.refund(attempt, 990, key="refund").json()["status"] == "succeeded"
    assert Refund.objects.count() == 1
    till.ends(attempt, IN_PART)


@pytest.mark.parametrize("channel", ["wechat", "alipay"])
def test_m21_our_account_has_too_little(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    till.sandbox.faults(not_enough=True)
    assert till.refund(attempt, 990).status_code == 202
    till.pass_time()
    open_still("requested")
    assert till.anomalies() == [("refund_failed", False)]
    till.sandbox.faults(not_enough=False)
    till.ends(attempt, IN_PART, ("refund_failed", True))
    assert Refund.objects.count() == 1


def test_m22_it_left_our_account_and_did_not_reach_the_shopper(till: Till) -> None:
    attempt = till.bought("wechat")
    till.sandbox.faults(refund_abnormal=True)
    assert till.refund(attempt, 990).status_code == 202
    till.all_notified()
    open_still("processing")
    assert Notification.objects.get(event_type="REFUND.ABNORMAL").verdict == "anomaly"
    assert till.anomalies() == [("refund_failed", False)]
    assert till.refund(attempt, 1001).json()["code"] == "refund_exceeds_paid"
    till.sandbox.faults(refund_abnormal=False)
    till.ends(attempt, IN_PART, ("refund_failed", True))


def test_stripe_s_bill_lists_a_refund_that_has_not_succeeded_yet(till: Till) -> None:
    """Were it taken for done, the order would be refunded, and nobody would ask any more."""
    attempt = till.bought("stripe")
    till.sandbox.faults(refund_abnormal=True)
    assert till.refund(attempt, PRICE_MINOR).status_code == 202
    till.all_notified()
    till.bill_agrees(attempt)
    assert till.state(attempt) == PAID
    assert (Refund.objects.get().status, Payment.objects.get().reserved_minor) == ("processing", PRICE_MINOR)
    till.sandbox.faults(refund_abnormal=False)
    till.settle()
    till.bill_agrees(attempt)
    till.ends(attempt, REFUNDED)
