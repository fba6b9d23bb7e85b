"""Ordered events of a payment, a transactional outbox: each is handled once and in order.

A change is staged in its own transaction as a numbered event, and a worker handles those that wait once a second,
as the NOTIFY of a job of their own would make all settling commits wait for each other. An event is handled under
its payment's row lock, its predecessors first, and marked in the same transaction. So a killed worker delays
events, and never doubles or swaps them.

``PAYMENTS["EVENTS"]`` names the handler: ``(event: PaymentEvent) -> None``, called inside that transaction. It
must not call out; what it raises leaves the event and all later ones of its payment waiting.
"""

import logging
import time
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Min
from django.db.models.functions import Now
from django.utils.module_loading import import_string
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.contrib.django.settings import settings as queue
from procrastinate.manager import JobManager

from idempotency.postgres.statements import Statement
from payments.conf import config
from payments.models import Payment, PaymentEvent
from payments.settlement import queries
from payments.settlement.state import PaymentRow

log = logging.getLogger(__name__)

PASS_SECONDS = 10.0  # after which no further payment is begun
PASS_PAYMENTS = 1_000


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


def handle_waiting(*, again: bool = False) -> int:
    """Handle waiting events; return how many. A failure keeps its payment until `again`.

    Transaction: NONE may be open. Any number may run at once.
    """
    waiting = PaymentEvent.objects.filter(handled_at__isnull=True).order_by().values_list("payment_id")
    # least failed first, so that hopeless ones do not keep the others waiting
    rows = waiting.annotate(failures=Max("attempts"), first=Min("id")).order_by("failures", "first")
    done, ends_at = 0, time.monotonic() + PASS_SECONDS
    for payment_id, *_ in (rows if again else rows.filter(failures=0))[:PASS_PAYMENTS]:
        if time.monotonic() >= ends_at:
            break
        try:
            done += handle(payment_id)
        except Exception:
            log.exception("events of payment %s wait", payment_id.hex)
    return done


def handle(payment_id: UUID) -> int:
    """Handle the payment's waiting events in order, until the handler raises; return how many.

    Transaction: NONE may be open. Any number may run at once; one handles, the others leave it to that.
    """
    done = 0
    while _handle_next(payment_id):
        done += 1
    return done


def _handle_next(payment_id: UUID) -> bool:
    event = None
    try:
        with transaction.atomic():
            # under the row lock the first waiting event is the next one in order
            ours = Payment.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=payment_id).first()
            event = None if ours is None else ours.events.filter(handled_at__isnull=True).first()
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
