"""Rows M16–M19: notifications lost, copied, in no order; and everything at random."""

import os
import random
from collections import Counter
from typing import Any

from django.db.models import F

from payments.models import Attempt, Notification, Observation, Refund
from payments.settlement.backoff import IN_DOUBT
from tests.system.money.till import CALLING, CHANNELS, EVERY, PAID, PRICE_MINOR, REFUNDED, Till

ORDERS = 12


@EVERY
def test_m16_the_notification_is_lost(till: Till, channel: str) -> None:
    till.sandbox.faults(drop_rate=1)
    till.ends(till.paid(channel), PAID)
    assert (Observation.objects.get().source, Notification.objects.count()) == ("query", 0)


@EVERY
def test_m17_the_notification_is_lost_and_the_timer_never_asks(till: Till, channel: str) -> None:
    till.sandbox.faults(drop_rate=1)
    attempt = till.paid(channel)
    for _ in range(2):
        till.bill_agrees(attempt)
    assert (till.state(attempt), Observation.objects.get().source) == (PAID, "bill")
    till.ends(attempt, PAID)


@EVERY
def test_m18_notifications_come_many_times_at_once_in_no_order_and_late(till: Till, channel: str) -> None:
    till.sandbox.faults(seed=18, duplicates=5, parallel=8, reorder=True, delay_ms=50, drop_rate=0.2)
    attempts = [till.paid(channel) for _ in range(3)]
    till.pass_time()
    for amount_minor in (400, 590, 1000):
        assert till.refund(attempts[0], amount_minor).status_code == 201
    for attempt, state in zip(attempts, (REFUNDED, PAID, PAID), strict=True):
        till.ends(attempt, state)
    assert [Observation.objects.filter(kind=kind).count() for kind in ("paid", "refunded")] == [3, 3]


def test_m19_everything_at_random(till: Till) -> None:
    seed = int(os.environ.get("MONEY_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
    print(f"MONEY_SEED={seed}")
    dice = random.Random(seed)
    till.sandbox.faults(seed=seed)
    for _ in range(ORDERS):
        _one_order(till, dice)
    till.sandbox.reset_faults()
    # a refund that was not answered, and is refused now, ends when the first request cannot be under way any more
    Refund.objects.filter(status="uncertain").update(submitted_at=F("submitted_at") - IN_DOUBT)
    till.settle()
    # what was lost for good, about trades that the timer had no reason to ask for any more; without any, no bill
    paid = till.charges()
    for channel in {attempt.channel for attempt in Attempt.objects.all() if attempt.out_trade_no in paid}:
        till.compare_today(channel)
    till.settle()
    # what was paid to another account stays uncertain until its time is over, and is closed then (row M11)
    elsewhere = {number for number, one in till.charges().items() if "seller" in one}
    uncertain = {attempt.out_trade_no for attempt in Attempt.objects.filter(status="uncertain")}
    assert uncertain <= elsewhere, f"MONEY_SEED={seed}"
    print(dict(Counter(till.anomalies())))
    unsettled = {kind for kind, settled in till.anomalies() if not settled}
    assert unsettled <= {"merchant_mismatch", "refund_failed"}, f"MONEY_SEED={seed}"
    till.witness()


def _one_order(till: Till, dice: random.Random) -> None:
    """Whatever shopper, shop and network may do with one order."""
    till.sandbox.faults(**_faults(dice))
    order, attempts = till.order(), []
    for channel in dice.sample(CHANNELS, k=dice.choice([1, 1, 1, 2])):
        answer = till.start(order, channel, method=dice.choice([CALLING[channel], None]))
        _answered(answer)
        attempts += Attempt.objects.filter(payment__order_id=order.id, channel=channel)
    if dice.random() < 0.3:
        _answered(till.cancel(order))
    for attempt in attempts:
        if dice.random() < 0.8:
            till.visit(attempt)
            till.pay_if_open(attempt)
    for step in dice.sample([till.all_notified, till.work, till.pass_time], k=dice.randint(0, 3)):
        step()
    for attempt in attempts:
        if dice.random() < 0.4:
            _answered(till.refund(attempt, dice.randint(1, PRICE_MINOR)))
        # what the policy gives back is left to it: row M12 is about those who are faster
        if dice.random() < 0.2 and attempt.observations.filter(kind="paid", credited=True).exists():
            body = {"out_trade_no": attempt.out_trade_no, "amount_minor": dice.randint(1, 500)}
            assert till.sandbox.http.post("/_control/refund", json=body).status_code in (200, 409)
    if dice.random() < 0.2:
        _answered(till.cancel(order))


def _faults(dice: random.Random) -> dict[str, Any]:
    return {
        "duplicates": dice.choice([0, 0, 3]),
        "parallel": dice.choice([0, 4]),
        "delay_ms": dice.choice([0, 20]),
        "reorder": dice.random() < 0.5,
        "drop_rate": dice.choice([0, 0, 0.3, 1]),
        "timeout_after_success": dice.choice([0, 0, 1, 2]),
        "http_500_rate": dice.choice([0, 0, 0.3]),
        "wrong_amount": dice.random() < 0.15,
        "wrong_seller": dice.random() < 0.1,
        "pay_closed": dice.random() < 0.5,
    }


def _answered(answer: Any) -> None:
    """Whatever it says, it is an answer of the contract."""
    assert answer.status_code in (200, 201, 202, 409, 502, 503), answer.content
