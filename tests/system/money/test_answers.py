"""Rows M01–M06, M23 of docs/guarantees.md: answers that are lost, late, or errors."""

from typing import Any

import pytest
from django.utils import timezone

from payments.models import Attempt, Observation, Payment, Refund
from tests.running import until
from tests.system.money.till import CALLING, CLOSED, EVERY, IN_PART, PAID, PRICE_MINOR, REFUNDED, Till
from tests.threads import in_background

PASSES_OF_AN_HOUR = 10  # the timer's back-off: 10 + 20 + 40 + … s


@EVERY
def test_m01_the_answer_to_the_opening_is_lost(till: Till, channel: str) -> None:
    order = till.order()
    till.sandbox.faults(timeout_after_success=1)
    answer = till.start(order, channel, method=CALLING[channel])
    assert (answer.status_code, answer.json()["status"]) == (202, "uncertain")
    till.settle()
    attempt = Attempt.objects.get()
    assert attempt.status == "pending"
    assert till.pay_if_open(attempt)
    till.ends(attempt, PAID)


@EVERY
def test_m01_the_shopper_pays_what_we_do_not_know_to_be_open(till: Till, channel: str) -> None:
    till.sandbox.faults(timeout_after_success=1, drop_rate=1)
    till.start(till.order(), channel, method=CALLING[channel])
    attempt = Attempt.objects.get()
    assert till.pay_if_open(attempt)
    till.ends(attempt, PAID)
    assert Attempt.objects.count() == 1


@EVERY
def test_m02_the_answer_to_the_refund_is_lost(till: Till, channel: str) -> None:
    attempt = till.bought(channel)
    till.sandbox.faults(timeout_after_success=1, drop_rate=1)
    answer = till.refund(attempt, 990, key="refund")
    assert (answer.status_code, answer.json()["status"]) == (202, "uncertain")
    assert Payment.objects.get().reserved_minor == 990
    till.ends(attempt, IN_PART)
    assert till.refund(attempt, 990, key="refund").json()["status"] == "succeeded"
    assert Refund.objects.count() == 1
    till.ends(attempt, IN_PART)


@EVERY
def test_m03_the_answer_to_the_closing_is_lost(till: Till, channel: str) -> None:
    order = till.order()
    attempt = till.open(order, channel)
    till.sandbox.faults(timeout_after_success=1)
    answer = till.cancel(order)
    # Stripe notifies of a cancelled payment, which may be faster than our own answer
    assert (answer.status_code, answer.json()["status"]) in {(202, "pending"), (200, "closed")}
    assert not till.pay_if_open(attempt)
    till.ends(attempt, CLOSED)


@EVERY
def test_m04_the_callback_comes_before_the_answer_to_the_opening(till: Till, channel: str) -> None:
    order = till.order()
    till.sandbox.faults(hold_answers=True)
    opening = in_background(lambda: till.start(order, channel, method=CALLING[channel]))
    attempt = until(Attempt.objects.first)
    until(lambda: till.pay_if_open(attempt))
    till.all_notified()
    assert till.state(attempt) == PAID
    till.release()
    # 202 where all of this took longer than we wait for an answer
    assert opening.result().status_code in (201, 202)
    till.sandbox.faults(hold_answers=False)
    till.ends(attempt, PAID)


@pytest.mark.parametrize(
    ("channel", "amount_minor", "after"),
    [
        *(("wechat", 990, IN_PART), ("stripe", PRICE_MINOR, REFUNDED)),
        *(("alipay", 990, IN_PART), ("alipay", PRICE_MINOR, REFUNDED)),
    ],
)
def test_m05_the_refund_is_notified_before_its_answer(
    till: Till, channel: str, amount_minor: int, after: tuple[str, str, int, int]
) -> None:
    attempt = till.bought(channel)
    till.sandbox.faults(hold_answers=True, duplicates=2)
    refunding = in_background(lambda: till.refund(attempt, amount_minor))
    until(lambda: till.moved(attempt) == (PRICE_MINOR, amount_minor))
    till.all_notified()
    # Alipay's notification does not say which refund it is about: the answer, or the timer, says so
    assert till.state(attempt) == (PAID if channel == "alipay" else after)
    till.release()
    assert refunding.result().status_code in (201, 202)
    till.sandbox.faults(hold_answers=False)
    till.ends(attempt, after)
    assert Refund.objects.get().status == "succeeded"


def test_m05_at_alipay_all_of_it_is_notified_and_the_answer_is_lost(till: Till) -> None:
    """The trade is closed then, and that must not read as closed unpaid."""
    attempt = till.bought("alipay")
    till.sandbox.faults(timeout_after_success=1)
    assert till.refund(attempt, PRICE_MINOR).status_code == 202
    till.all_notified()
    assert (till.state(attempt), Payment.objects.get().reserved_minor) == (PAID, PRICE_MINOR)
    till.ends(attempt, REFUNDED)
    assert Observation.objects.count() == 2


@EVERY
def test_m06_the_provider_answers_500_for_an_hour(till: Till, channel: str, settings: Any) -> None:
    settings.ORDER_TTL_SECONDS = 7200
    paid, order = till.bought(channel), till.order()
    till.sandbox.faults(http_500_rate=1)
    assert till.start(order, channel, method=CALLING[channel]).status_code == 202
    assert till.refund(paid, 990).status_code == 202
    for _ in range(PASSES_OF_AN_HOUR):
        till.pass_time()
        till.work()
    attempt = till.attempt(order, channel)
    assert (attempt.status, Refund.objects.get().status) == ("uncertain", "uncertain")
    assert attempt.query_count >= PASSES_OF_AN_HOUR
    assert attempt.next_query_at is not None
    assert attempt.next_query_at > timezone.now()
    till.sandbox.faults(http_500_rate=0)
    till.settle()
    attempt.refresh_from_db()
    assert attempt.status == "pending"
    assert till.pay_if_open(attempt)
    till.ends(attempt, PAID)
    till.ends(paid, IN_PART)
    assert (Attempt.objects.count(), Refund.objects.count()) == (2, 1)
    assert Observation.objects.filter(kind="paid").count() == 2


def test_m23_the_shopper_is_paying_while_the_order_is_cancelled(till: Till) -> None:
    order = till.order()
    attempt = till.open(order, "wechat")
    till.sandbox.faults(user_paying=True)
    answer = till.cancel(order)
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    assert till.pay_if_open(attempt)
    till.ends(attempt, PAID)
