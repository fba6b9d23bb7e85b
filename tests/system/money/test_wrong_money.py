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
from tests.system.money.till import CHANNELS, CLOSED, EVERY, PAID, PRICE_MINOR, Till
from tests.threads import at_once

# at Stripe a canceled intent is never charged, and an intent belongs to the account that opened it
NOT_STRIPE = pytest.mark.parametrize("channel", ["wechat", "alipay"])

UNPAID = ("pending", "pending", 0, 0)
ALL_BACK = (PRICE_MINOR, PRICE_MINOR)
TOO_LATE = ("paid_after_close", True)


@NOT_STRIPE
def test_m07_paid_after_the_order_was_closed(till: Till, channel: str) -> None:
    order = till.order()
    attempt = till.open(order, channel)
    assert till.cancel(order).json()["status"] == "closed"
    till.sandbox.faults(pay_closed=True)
    assert till.pay_if_open(attempt)
    till.ends(attempt, CLOSED, TOO_LATE, moved=ALL_BACK)
    resolution = f"refunded {money(PRICE_MINOR, 'CNY')} under {Refund.objects.get().out_refund_no}"
    assert Anomaly.objects.get().resolution == resolution


def test_m07_at_stripe_a_canceled_intent_cannot_be_paid(till: Till) -> None:
    order = till.order()
    attempt = till.open(order, "stripe")
    till.cancel(order)
    till.sandbox.faults(pay_closed=True)
    assert not till.pay_if_open(attempt)
    till.ends(attempt, CLOSED)


@pytest.mark.parametrize("lost", [False, True], ids=["notified", "its notification is lost"])
def test_m07_at_alipay_the_shopper_arrives_after_the_order_was_closed(till: Till, lost: bool) -> None:
    """Alipay has no trade to close until somebody follows our signed address."""
    till.sandbox.faults(drop_rate=int(lost))
    order = till.order()
    assert till.start(order, "alipay", method="page").status_code == 201
    assert till.cancel(order).json()["status"] == "closed"
    attempt = till.attempt(order, "alipay")
    till.visit(attempt)
    assert till.pay_if_open(attempt)
    if lost:
        tasks.look_again(attempt_id=attempt.out_trade_no)  # the queue does, when the address is good no more
    till.ends(attempt, CLOSED, TOO_LATE, moved=ALL_BACK)


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
    assert set(till.anomalies()) <= {TOO_LATE}
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
    """The second charge goes back, and the order stays paid."""
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
    closed = ("pending", "closed", 0, 0)  # the order waits for another attempt
    till.ends(attempt, closed, ("amount_mismatch", True), moved=(PRICE_MINOR + 100, PRICE_MINOR + 100))
    assert Anomaly.objects.get().detail["expected_minor"] == PRICE_MINOR
    # the order can still be paid as it should be
    till.sandbox.faults(wrong_amount=False)
    again = till.open(order, channel)
    assert again.pk != attempt.pk
    till.sandbox.pay(again.out_trade_no)
    till.ends(again, PAID, ("amount_mismatch", True))


@NOT_STRIPE
def test_m11_paid_to_another_seller(till: Till, channel: str) -> None:
    till.sandbox.faults(wrong_seller=True)
    attempt = till.paid(channel)
    assert till.charges()[attempt.out_trade_no]["seller"]
    # it never was ours: not credited, not held, and there is nothing that we could give back
    till.ends(attempt, UNPAID, ("merchant_mismatch", False), moved=(PRICE_MINOR, 0))
    assert (Refund.objects.count(), Observation.objects.filter(kind="paid").count()) == (0, 0)
    attempt.refresh_from_db()
    assert attempt.status == "pending"  # another account's word does not end it
    Order.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    till.ends(attempt, CLOSED, ("merchant_mismatch", False), moved=(PRICE_MINOR, 0))


@NOT_STRIPE
def test_m11_paid_to_another_seller_without_a_notification(till: Till, channel: str) -> None:
    """WeChat's answer names the other account; Alipay knows of no trade of ours."""
    till.sandbox.faults(wrong_seller=True, drop_rate=1)
    attempt = till.paid(channel)
    known = [("merchant_mismatch", False)] if channel == "wechat" else []
    till.ends(attempt, UNPAID, *known, moved=(PRICE_MINOR, 0))
    assert Refund.objects.count() == 0


@EVERY
def test_m12_policy_finds_that_somebody_was_faster(till: Till, channel: str) -> None:
    """The provider refuses to give back twice, and a person hears of it."""
    till.sandbox.faults(wrong_amount=True)
    attempt = till.paid(channel)
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
