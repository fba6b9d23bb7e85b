"""Rows M07–M12: money that comes too late, twice, in another amount, or to somebody else."""

from datetime import timedelta
from itertools import combinations

import pytest
from django.utils import timezone

from payments import tasks
from payments.display import money
from payments.models import Anomaly, Observation, Payment, Refund
from shop.models import Order
from shop.orders import lifecycle
from tests.system.money.till import CHANNELS, PRICE_MINOR, Till
from tests.threads import at_once

EVERY = pytest.mark.parametrize("channel", CHANNELS)
# at Stripe a canceled intent is never charged, and an intent belongs to the account that opened it
NOT_STRIPE = pytest.mark.parametrize("channel", ["wechat", "alipay"])

PAID = ("paid", "succeeded", PRICE_MINOR, 0)
CLOSED = ("closed", "closed", 0, 0)
ALL_BACK = (PRICE_MINOR, PRICE_MINOR)


def resolution(kind: str) -> str:
    text: str = Anomaly.objects.get(kind=kind).resolution
    return text


@NOT_STRIPE
def test_m07_paid_after_the_order_was_closed(till: Till, channel: str) -> None:
    order = till.order()
    attempt = till.open(order, channel)
    assert till.cancel(order).json()["status"] == "closed"
    till.sandbox.faults(pay_closed=True)
    assert till.pay_if_open(attempt)
    till.settle()
    assert (till.state(attempt), till.moved(attempt)) == (CLOSED, ALL_BACK)
    assert till.anomalies() == [("paid_after_close", True)]
    assert (
        resolution("paid_after_close")
        == f"refunded {money(PRICE_MINOR, 'CNY')} under {Refund.objects.get().out_refund_no}"
    )
    till.witness()


def test_m07_at_stripe_a_canceled_intent_cannot_be_paid(till: Till) -> None:
    order = till.order()
    attempt = till.open(order, "stripe")
    till.cancel(order)
    till.sandbox.faults(pay_closed=True)
    assert not till.pay_if_open(attempt)
    till.settle()
    assert (till.state(attempt), till.moved(attempt), till.anomalies()) == (CLOSED, (0, 0), [])
    till.witness()


@pytest.mark.parametrize("lost", [False, True], ids=["notified", "its notification is lost"])
def test_m07_at_alipay_the_shopper_arrives_after_the_order_was_closed(till: Till, lost: bool) -> None:
    """Alipay has no trade to close until somebody follows our signed address, which is good until it expires."""
    till.sandbox.faults(drop_rate=int(lost))
    order = till.order()
    assert till.start(order, "alipay", method="page").status_code == 201
    assert till.cancel(order).json()["status"] == "closed"
    attempt = till.attempt(order, "alipay")
    till.visit(attempt)
    assert till.pay_if_open(attempt)
    if lost:
        tasks.look_again(attempt_id=attempt.out_trade_no)  # the queue does, when the address is good no more
    till.settle()
    assert (till.state(attempt), till.moved(attempt)) == (CLOSED, ALL_BACK)
    assert till.anomalies() == [("paid_after_close", True)]
    till.witness()


@pytest.mark.parametrize(
    ("channel", "on_its_way"), [("wechat", True), ("alipay", True), ("alipay", False), ("stripe", False)]
)
def test_m08_paid_while_it_expires(till: Till, channel: str, on_its_way: bool) -> None:
    till.sandbox.faults(pay_closed=on_its_way)
    for _ in range(2):
        order = till.order()
        attempt = till.open(order, channel)
        Order.objects.filter(pk=order.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        charged, _ = at_once(
            lambda: till.pay_if_open(attempt),  # noqa: B023  called before the next turn
            lambda: bool(lifecycle.expire(order_id=order.pk)),  # noqa: B023
        )
        till.settle()
        outcome = (till.state(attempt), till.moved(attempt))
        fitting = [(PAID, (PRICE_MINOR, 0)), (CLOSED, ALL_BACK)] if charged else [(CLOSED, (0, 0))]
        assert outcome in fitting
    assert set(till.anomalies()) <= {("paid_after_close", True)}
    till.witness()


@pytest.mark.parametrize(
    "ways", [ways for count in (2, 3) for ways in combinations(CHANNELS, count)], ids=" and ".join
)
def test_m09_paid_by_two_or_three_channels(till: Till, ways: tuple[str, ...]) -> None:
    order = till.order()
    attempts = [till.open(order, channel) for channel in ways]
    at_once(*[lambda attempt=attempt: till.pay_if_open(attempt) for attempt in attempts])
    till.settle()
    others = len(ways) - 1
    assert sorted(till.moved(attempt) for attempt in attempts) == [(PRICE_MINOR, 0), *[ALL_BACK] * others]
    assert till.state(attempts[0]) == PAID
    assert (till.anomalies(), Payment.objects.count()) == ([("paid_twice", True)] * others, 1)
    till.witness()


def test_m09_at_stripe_a_second_intent_of_our_number_is_paid(till: Till) -> None:
    """The others take one payment a number. What goes back is the second charge, and the order stays paid."""
    attempt = till.bought("stripe")
    copy = till.copy_intent(attempt)
    till.sandbox.pay(copy)
    till.settle()
    back = {number: one["refunded_minor"] for number, one in till.charges().items()}
    assert back == {attempt.out_trade_no: 0, copy: PRICE_MINOR}
    assert till.state(attempt) == PAID
    assert till.anomalies() == [("paid_twice", True)]
    till.witness()


def test_m09_at_stripe_the_second_charge_goes_back_by_hand_and_the_bill_shows_it(till: Till) -> None:
    """The bill's line names the intent, so the charge that counts stays paid."""
    attempt = till.bought("stripe")
    copy = till.copy_intent(attempt)
    till.sandbox.pay(copy)
    till.all_notified()
    hand = {"out_trade_no": copy, "amount_minor": PRICE_MINOR}
    till.sandbox.http.post("/_control/refund", json=hand).raise_for_status()
    till.compare_today("stripe")
    assert till.state(attempt) == PAID
    assert Observation.objects.get(kind="refunded").paid_txn_id == copy
    till.witness()


@EVERY
def test_m10_paid_in_another_amount(till: Till, channel: str) -> None:
    till.sandbox.faults(wrong_amount=True)
    order = till.order()
    attempt = till.open(order, channel)
    till.sandbox.pay(attempt.out_trade_no)
    till.settle()
    assert till.moved(attempt) == (PRICE_MINOR + 100, PRICE_MINOR + 100)
    assert till.anomalies() == [("amount_mismatch", True)]
    assert Anomaly.objects.get(kind="amount_mismatch").detail["expected_minor"] == PRICE_MINOR
    assert till.state(attempt)[0] == "pending"
    till.witness()
    # the order can still be paid as it should be
    till.sandbox.faults(wrong_amount=False)
    again = till.open(order, channel)
    assert again.pk != attempt.pk
    till.sandbox.pay(again.out_trade_no)
    till.settle()
    assert (till.state(again), till.moved(again)) == (PAID, (PRICE_MINOR, 0))
    till.witness()


@NOT_STRIPE
def test_m11_paid_to_another_seller(till: Till, channel: str) -> None:
    till.sandbox.faults(wrong_seller=True)
    order = till.order()
    attempt = till.open(order, channel)
    till.sandbox.pay(attempt.out_trade_no)
    assert till.charges()[attempt.out_trade_no]["seller"]
    till.settle()
    # it never was ours: not credited, not held, and there is nothing that we could give back
    assert till.anomalies() == [("merchant_mismatch", False)]
    assert (Refund.objects.count(), Observation.objects.filter(kind="paid").count()) == (0, 0)
    assert (till.state(attempt)[0], till.moved(attempt)) == ("pending", (PRICE_MINOR, 0))
    attempt.refresh_from_db()
    assert attempt.status == "pending"  # another account's word does not end it
    till.witness()
    Order.objects.filter(pk=order.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    till.settle()
    assert till.state(attempt)[0] == "closed"
    assert till.anomalies() == [("merchant_mismatch", False)]
    till.witness()


@NOT_STRIPE
def test_m11_paid_to_another_seller_without_a_notification(till: Till, channel: str) -> None:
    """WeChat's answer names the other account; Alipay knows of no trade of ours."""
    till.sandbox.faults(wrong_seller=True, drop_rate=1)
    attempt = till.open(till.order(), channel)
    till.sandbox.pay(attempt.out_trade_no)
    till.settle()
    assert till.anomalies() == ([("merchant_mismatch", False)] if channel == "wechat" else [])
    assert (till.state(attempt)[0], Refund.objects.count()) == ("pending", 0)
    till.witness()


@EVERY
def test_m12_policy_finds_that_somebody_was_faster(till: Till, channel: str) -> None:
    """What we hold went back by hand; the provider refuses to give it back twice, and a person hears of it."""
    till.sandbox.faults(wrong_amount=True)
    attempt = till.open(till.order(), channel)
    till.sandbox.pay(attempt.out_trade_no)
    till.all_notified()
    till.sandbox.faults(drop_rate=1)
    till.refund_by_hand(attempt, PRICE_MINOR + 100)
    till.settle()
    assert till.anomalies() == [("amount_mismatch", False), ("refund_failed", False)]
    assert till.moved(attempt) == (PRICE_MINOR + 100, PRICE_MINOR + 100)
    till.compare_today(channel)
    till.settle()
    assert till.state(attempt)[2:] == (0, 0)
    till.witness()
