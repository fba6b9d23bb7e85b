"""Ordered events of a payment, a transactional outbox: each is handled once and in order.

A change is staged in its own transaction as a numbered event; once a second a worker gives each payment with
waiting events a job, as a NOTIFY in the settling transaction makes all such commits wait for each other. An event
is handled under its payment's row lock, its predecessors first, and marked in the same transaction. So a killed
worker or a lost job delays events, and never doubles or swaps them.

``PAYMENTS["EVENTS"]`` names the handler: ``(event: PaymentEvent) -> None``, called inside that transaction. It
must not call out; what it raises leaves the event and all later ones of its payment waiting.
"""

import logging
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils.module_loading import import_string
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.contrib.django.settings import settings as queue
from procrastinate.manager import JobManager

from idempotency.locks.errors import LockTimeout
from idempotency.locks.postgres import transaction_lock
from idempotency.postgres.statements import Statement, send
from payments.conf import config
from payments.models import Payment, PaymentEvent
from payments.settlement import queries
from payments.settlement.state import PaymentRow

log = logging.getLogger(__name__)

# a job is there within a second or two; what waits longer was left by a dead worker, or failed before
OVERDUE_SECONDS = 30
BATCH, OVERDUE_BATCHES = 100, 20
QUEUED_AT_ONCE = 1_000


def stage(payment: PaymentRow) -> Statement:
    """Number the payment's new status as its next event, in the transaction that sets it."""
    event = (payment.id, payment.version, payment.status, payment.paid_minor, payment.refunded_minor)
    return Statement(queries.STAGE_EVENT, event, rows=1, certain=True)


def defer(
    name: str,
    *,
    lock: str | None = None,
    queueing_lock: str | None = None,
    in_seconds: int | None = None,
    **arguments: str | int,
) -> None:
    """Queue a job in the caller's transaction.

    A worker's `app` has connections of its own: a job of it begins before our commit, and outlives our rollback.
    """
    later = None if in_seconds is None else {"seconds": in_seconds}
    made = app.configure_task(
        name, lock=lock, queueing_lock=queueing_lock, schedule_in=later, task_kwargs={**arguments}
    )
    JobManager(DjangoConnector(queue.DATABASE_ALIAS)).defer_job(made.job)


def queue_waiting() -> int:
    """Give each payment with waiting events a job, unless it has one; return how many got one.

    Events that failed before are left to the retries of their job, and then to `handle_overdue`.

    Transaction: NONE may be open, so that workers see the jobs. Any number may run at once.
    """
    with suppress(LockTimeout), transaction.atomic():
        # a backlog may take longer than until the next run begins
        transaction_lock("payments.queue_events", wait_seconds=0)
        (found,) = send(Statement(queries.WAITING_EVENTS, [QUEUED_AT_ONCE]))
        if found:
            jobs = [
                app.configure_task("payments.handle_events", lock=lock, task_kwargs={"payment_id": number.hex}).job
                for number, lock in found
            ]
            app.job_manager.batch_defer_jobs(jobs)
        return len(found)
    return 0


def handle(payment_id: UUID) -> int:
    """Handle the payment's waiting events in order, until the handler raises; return how many.

    Transaction: NONE may be open. Any number may run at once.
    """
    done = 0
    while _handle_next(payment_id):
        done += 1
    return done


def handle_overdue() -> int:
    """Handle events that no job got to; return how many. One that fails keeps only its own payment waiting.

    Transaction: NONE may be open.
    """
    overdue = PaymentEvent.objects.filter(
        handled_at__isnull=True, created_at__lt=Now() - timedelta(seconds=OVERDUE_SECONDS)
    )
    done, failed = 0, set[UUID]()
    for _ in range(OVERDUE_BATCHES):
        # least failed first, so that a batch of hopeless ones does not keep the others waiting
        waiting = overdue.exclude(payment_id__in=failed).order_by("attempts", "id")
        payments = dict.fromkeys(waiting.values_list("payment_id", flat=True)[:BATCH])
        if not payments:
            break
        for payment_id in payments:
            try:
                done += handle(payment_id)
            except Exception:
                failed.add(payment_id)
                log.exception("events of payment %s wait", payment_id.hex)
    return done


def _handle_next(payment_id: UUID) -> bool:
    event = None
    try:
        with transaction.atomic():
            # the row lock makes workers take turns, so the first waiting event is the next one in order
            Payment.objects.select_for_update(no_key=True).get(pk=payment_id)
            event = PaymentEvent.objects.filter(payment_id=payment_id, handled_at__isnull=True).first()
            if event is None:
                return False
            if (handler := config().events) is not None:
                import_string(handler)(event)
            PaymentEvent.objects.filter(pk=event.pk, handled_at__isnull=True).update(handled_at=Now())
    except Exception:
        if event is not None:
            PaymentEvent.objects.filter(pk=event.pk).update(attempts=F("attempts") + 1)
        raise
    return True
