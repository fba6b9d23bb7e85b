"""Real workers: one payment's events one after the other, also after a kill."""

import subprocess
import sys
from contextlib import suppress

import pytest
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued

from payments.models import Payment, PaymentEvent
from shop.models import Fulfilment
from tests.emptying import rows
from tests.integration.payments.conftest import OpenAttempt, fold, paid, payment_of, refunded
from tests.processes import on_the_tests_database
from tests.sandbox import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = """
import os, signal, sys
import django
django.setup()
from django.conf import settings
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from shop.orders import fulfilment

def die(event):
    fulfilment.on_event(event)
    if event.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # in the middle of its transaction, with the payment locked

fulfilment.dying = die
if sys.argv[1] == "die":
    settings.PAYMENTS = {**settings.PAYMENTS, "EVENTS": "shop.orders.fulfilment.dying"}
worker = app.with_connector(app.connector.get_worker_connector())
worker.run_worker(wait=False, concurrency=3, listen_notify=False)
"""


def worker(how: str) -> "subprocess.Popen[bytes]":
    with suppress(AlreadyEnqueued):  # by the timer of the one before
        app.configure_task("payments.handle_events").defer(timestamp=0)
    return subprocess.Popen([sys.executable, "-c", WORKER, how], cwd=ROOT, env=on_the_tests_database())


@pytest.fixture
def payments(open_attempt: OpenAttempt) -> list[Payment]:
    """Six payments with three events each; nobody else's jobs are in the queue."""
    rows("DELETE FROM procrastinate_jobs")
    attempts = [open_attempt() for _ in range(6)]
    for attempt in attempts:
        fold(paid(attempt), source="notification")
    for amount, end in ((90, "x"), (1900, "y")):
        for attempt in attempts:
            fold(refunded(attempt, amount, attempt.out_trade_no[:31] + end), source="notification")
    return [payment_of(attempt) for attempt in attempts]


def test_a_killed_worker_delays_its_payment_and_nothing_is_done_twice(payments: list[Payment]) -> None:
    assert worker("die").wait(120) == -9
    half = PaymentEvent.objects.filter(handled_at__isnull=False).count()
    assert half < 3 * len(payments)
    assert worker("live").wait(120) == 0
    kept = rows("SELECT 1 FROM procrastinate_jobs WHERE status = 'doing'")
    assert kept, "the queue still believes that the killed worker works"
    assert list(Fulfilment.objects.values_list("status", "number")) == [("recalled", 4)] * len(payments)
    assert PaymentEvent.objects.filter(handled_at__isnull=False, attempts=0).count() == 3 * len(payments)
