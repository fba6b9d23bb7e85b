"""Somebody changes a payment between the reading and the writing of a decision about it.

Facts are decided on before their transaction begins. Whatever others do in between, it must end as if they had come
first: the same money, the same books, the same anomalies.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from payments.models import Anomaly, Attempt, Notification, Observation, Payment, Refund
from payments.settlement import journal, read, settle
from payments.settlement.settle import rederive
from payments.webhooks import intake as webhooks
from shop.models import Order
from shop.orders import lifecycle
from tests.integration.payments.conftest import (
    CHANNELS,
    Letter,
    OpenAttempt,
    books,
    closed,
    fold,
    letter,
    opened,
    order_of,
    paid,
    payment_of,
    refunded,
)
from tests.running import until
from tests.threads import at_once, in_background, waiting_for_locks

pytestmark = pytest.mark.usefixtures("no_network")

Happens = Callable[[Attempt], object]


def cancelled(attempt: Attempt) -> None:
    order = order_of(attempt)
    with transaction.atomic():
        Order.objects.filter(pk=order.pk).update(closing_at=timezone.now())
        lifecycle._close_here(order_id=order.pk)


def other_way_opened(attempt: Attempt) -> None:
    opened(order_of(attempt), next(channel for channel in CHANNELS if channel != attempt.channel))


def other_way_paid(attempt: Attempt) -> None:
    other_way_opened(attempt)
    fold(paid(Attempt.objects.exclude(pk=attempt.pk).get(payment=attempt.payment)))


def counted_up(attempt: Attempt) -> None:
    with transaction.atomic():
        rederive(attempt.payment_id)


def refund_number(attempt: Attempt) -> str:
    return attempt.out_trade_no[::-1]


def letter_about(attempt: Attempt) -> Letter:
    return letter(attempt, notification_id=f"n-{attempt.out_trade_no}")


HAPPENS: dict[str, Happens] = {
    "nothing": lambda attempt: None,
    "the timer reports the same": lambda attempt: fold(paid(attempt)),
    "it is reported with another amount": lambda attempt: fold(paid(attempt, amount_minor=1)),
    "another charge of it is reported, in another amount": lambda attempt: fold(
        paid(attempt, amount_minor=1, provider_txn_id=f"4201{attempt.out_trade_no[-20:]}")
    ),
    "it went to another merchant": lambda attempt: fold(paid(attempt, merchant="1900999999")),
    "a refund comes early": lambda attempt: fold(refunded(attempt, 990, refund_number(attempt))),
    "a refund that implies it": lambda attempt: fold(
        refunded(attempt, 990, refund_number(attempt), implies_payment=True)
    ),
    "it was closed": lambda attempt: fold(closed(attempt)),
    "the order was closed": cancelled,
    "another way to pay is opened": other_way_opened,
    "it is paid another way": other_way_paid,
    "its version counts up": counted_up,
    "its concurrent duplicate is applied": lambda attempt: letter_about(attempt).send(),
    "another of its notifications is applied": lambda attempt: letter(attempt).send(),
}


NOT_LOST = {"nothing", "it went to another merchant"}  # a person looks at it, and nothing else changed


def end(attempt: Attempt) -> dict[str, Any]:
    payment, now = payment_of(attempt), timezone.now()
    facts = Observation.objects.filter(attempt__payment=payment)
    ours = {"out_trade_no": attempt.out_trade_no, "notification_id__startswith": "n-"}
    asked_at_once = payment.attempts.filter(next_query_at__lte=now).values_list("channel", "query_count")
    return {
        "payment": (payment.status, payment.paid_minor, payment.refunded_minor, payment.reserved_minor),
        "order": order_of(attempt).status,
        "attempts": sorted(payment.attempts.values_list("channel", "status")),
        "asked at once": sorted(asked_at_once),
        "events": list(payment.events.order_by("id").values_list("status", flat=True)),
        "facts": sorted(facts.values_list("kind", "amount_minor", "merchant", "credited")),
        "anomalies": sorted(payment.anomalies.values_list("kind", "resolution")),
        "refunds": Refund.objects.filter(payment=payment).count(),
        "verdict": Notification.objects.get(**ours).verdict,
    }


def books_agree() -> None:
    owed = sum(row.refunded_minor - row.paid_minor for row in Payment.objects.all())
    assert books().get(journal.ORDERS, 0) == owed


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[str]]:
    """Has something happen once, on another connection, when a notification was looked up."""

    def between(happens: Callable[[], object]) -> list[str]:
        looked: list[str] = []
        ours, look = threading.current_thread(), webhooks._look

        def found(*about: Any) -> Any:
            answer = look(*about)
            if threading.current_thread() is ours:
                looked.append("again" if looked else "first")
                if len(looked) == 1:
                    at_once(happens)
            return answer

        monkeypatch.setattr(webhooks, "_look", found)
        return looked

    return between


@pytest.mark.parametrize(
    ("channel", "what"), [*(("wechat", what) for what in HAPPENS), ("alipay", "it is paid another way")]
)
def test_it_ends_as_if_it_came_first(open_attempt: OpenAttempt, meanwhile: Any, channel: str, what: str) -> None:
    before, attempt = open_attempt(channel), open_attempt(channel)
    HAPPENS[what](before)
    letter_about(before).send()
    looked = meanwhile(lambda: HAPPENS[what](attempt))
    answer = letter_about(attempt).send()
    assert (answer.status_code, answer.content) == ((204, b"") if channel == "wechat" else (200, b"success"))
    assert looked == ["first", *(["again"] if what not in NOT_LOST else [])], "it did not notice"
    assert end(attempt) == end(before)
    books_agree()


def test_after_three_losses_the_row_is_locked(open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, locked = open_attempt(), list[bool]()
    read_state = read.state_for

    def found(facts: Any, *, lock: bool = False) -> Any:
        state = read_state(facts, lock=lock)
        locked.append(lock)
        if not lock:
            at_once(lambda: counted_up(attempt))
        return state

    monkeypatch.setattr(read, "state_for", found)
    settle.settle(paid(attempt), source="query")
    assert locked == [False, False, False, True]
    assert payment_of(attempt).status == "succeeded"
    books_agree()


def held_until_somebody_waits(hold: Callable[[Callable[[], None]], None]) -> "Future[None]":
    """Run `hold` beside us until it calls its argument, which returns when somebody is locked out."""
    holds = threading.Event()

    def until_waited_for() -> None:
        holds.set()
        until(waiting_for_locks)

    held = in_background(lambda: transaction.atomic(hold)(until_waited_for))
    assert holds.wait(30)
    return held


@pytest.mark.parametrize("refund", [True, False], ids=["a refund is reported under the lock", "only the lock"])
def test_it_waits_for_the_lock_and_sees_the_change(
    open_attempt: OpenAttempt, meanwhile: Any, refund: bool
) -> None:
    attempt = open_attempt()

    def hold(until: Callable[[], None]) -> None:
        Payment.objects.select_for_update(no_key=True).get(pk=attempt.payment_id)
        if refund:
            fold(refunded(attempt, 990, refund_number(attempt)), source="query")
        until()

    held: list[Future[None]] = []
    looked = meanwhile(lambda: held.append(held_until_somebody_waits(hold)))
    assert letter(attempt).send().status_code == 204
    held[0].result(30)
    payment = payment_of(attempt)
    assert looked == (["first", "again"] if refund else ["first"])
    assert (payment.status, payment.paid_minor, payment.refunded_minor) == (
        ("partially_refunded", 1990, 990) if refund else ("succeeded", 1990, 0)
    )
    assert not Anomaly.objects.exists()
    books_agree()


def test_checkout_that_has_the_order_does_not_wait_for_it(open_attempt: OpenAttempt, meanwhile: Any) -> None:
    """It looks for a payment while the notification waits for the order: no deadlock."""
    attempt, again = open_attempt(), list[Attempt]()
    order = order_of(attempt)

    def hold(until: Callable[[], None]) -> None:
        Order.objects.select_for_update(no_key=True).get(pk=order.pk)
        until()
        again.append(opened(order))

    held: list[Future[None]] = []
    meanwhile(lambda: held.append(held_until_somebody_waits(hold)))
    assert letter(attempt).send().status_code == 204
    held[0].result(30)
    assert again == [attempt]
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")
