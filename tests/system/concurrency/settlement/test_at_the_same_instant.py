"""Callbacks, timer, refunds and openings that meet at the same instant: each counts once."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from payments.models import Anomaly, Attempt, Notification, Observation, Payment
from shop.models import Order
from tests.integration.payments.conftest import (
    CHANNELS,
    OpenAttempt,
    fold,
    letter,
    opened,
    order_of,
    paid,
    payment_of,
)
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)
COPIES = 10


@pytest.mark.parametrize("channel", CHANNELS)
def test_ten_copies_of_one_notification_are_one_credit(open_attempt: OpenAttempt, channel: str) -> None:
    attempt = open_attempt(channel)
    note = letter(attempt, notification_id="n-1")
    answers = at_once(*[note.send] * COPIES)
    assert {answer.status_code for answer in answers} == {204 if channel == "wechat" else 200}
    assert {answer.content for answer in answers} == {b"" if channel == "wechat" else b"success"}
    assert (payment_of(attempt).paid_minor, order_of(attempt).status) == (1990, "paid")
    assert (Observation.objects.count(), Notification.objects.count(), Anomaly.objects.count()) == (1, 1, 0)


@pytest.mark.parametrize("channel", CHANNELS)
def test_ten_notifications_of_one_fact_are_one_credit(open_attempt: OpenAttempt, channel: str) -> None:
    attempt = open_attempt(channel)
    at_once(*[letter(attempt).send for _ in range(COPIES)])
    assert (payment_of(attempt).paid_minor, Observation.objects.count()) == (1990, 1)
    assert Notification.objects.filter(verdict="applied").count() == 1
    assert Notification.objects.filter(verdict="duplicate").count() == COPIES - 1


def test_callback_and_timer_credit_once(open_attempt: OpenAttempt) -> None:
    for _ in range(5):
        attempt = open_attempt()
        fact = paid(attempt)

        def by_timer(fact: Any = fact) -> None:
            fold(fact, source="query")

        at_once(letter(attempt).send, by_timer, by_timer)
        payment = payment_of(attempt)
        assert (payment.status, payment.paid_minor) == ("succeeded", 1990)
        assert Observation.objects.filter(attempt=attempt, credited=True).count() == 1
    assert Anomaly.objects.count() == 0


def test_opening_at_once_is_one_payment_and_one_attempt(new_order: Callable[[], Order], channels: None) -> None:
    order = new_order()

    def open_locked() -> Attempt:
        with transaction.atomic():
            Order.objects.select_for_update(no_key=True).get(pk=order.pk)
            return opened(order)

    assert len({attempt.pk for attempt in at_once(*[open_locked] * 6)}) == 1
    assert (Payment.objects.count(), Attempt.objects.count()) == (1, 1)
