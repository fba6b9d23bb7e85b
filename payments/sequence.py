"""What follows from a payment's new status, done once and in the order in which it happened.

A change is staged in its own transaction as a numbered event, with a job for the queue: the queue's lock of the
payment lets one worker at a time act for it, while other payments go on beside it. What keeps the order is not
that lock but the rows: an event is acted on under its payment's row lock, its predecessors first, and marked in
the same transaction. So a worker that is killed, or a job that is lost, delays events and never doubles or swaps
them.

`PAYMENT_EVENT_HANDLER` names what acts: ``(event: PaymentEvent) -> None``, called inside that transaction. It
must not call out; what it raises leaves the event and all later ones of its payment waiting.
"""

import json
import logging
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from idempotency.statements import Statement
from payments.models import Payment, PaymentEvent

log = logging.getLogger(__name__)

# a job is picked up within a second; who waits for longer was left by a worker that died, or failed before
OVERDUE_SECONDS = 30
BATCH = 100

# the second half is what `defer` of the task asks for, by the function of procrastinate's that it calls; a test
# compares the two
_STAGE = f"""
WITH event AS (
    INSERT INTO {PaymentEvent._meta.db_table} (payment_id, number, status, paid_minor, refunded_minor, attempts)
    VALUES (%s, %s, %s, %s, %s, 0)
)
SELECT procrastinate_defer_jobs_v1(ARRAY[
    ROW ('default', 'payments.handle_events', 0, %s, NULL, %s, NULL)::procrastinate_job_to_defer_v1
])
"""  # noqa: S608  our own table's name


def stage(payment: Payment) -> Statement:
    """What notes the payment's present status as its next event, with the job that acts on it.

    To be sent in the transaction in which the status changes and the version with it.
    """
    number = payment.id.hex
    event = (payment.id, payment.version, payment.status, payment.paid_minor, payment.refunded_minor)
    job = (f"events {number}", json.dumps({"payment_id": number}))
    return Statement(_STAGE, [*event, *job], rows=1, certain=True)


def handle(payment_id: UUID) -> int:
    """Act on the payment's waiting events, oldest first, each in a transaction of its own; how many there were.

    Raises:
        Exception: whatever the handler raised; that event and the later ones wait.

    Transaction: NONE may be open. Any number may run at once.
    """
    done = 0
    while _handle_next(payment_id):
        done += 1
    return done


def handle_overdue() -> int:
    """Act on events that no job got to; how many there were. One that fails keeps only its own payment waiting.

    Transaction: NONE may be open.
    """
    overdue = PaymentEvent.objects.filter(
        handled_at__isnull=True, created_at__lt=Now() - timedelta(seconds=OVERDUE_SECONDS)
    )
    done = 0
    # those that failed less often first, so that a batch of hopeless ones does not keep the others waiting
    payments = overdue.order_by("attempts", "id").values_list("payment_id", flat=True)[:BATCH]
    for payment_id in dict.fromkeys(payments):
        try:
            done += handle(payment_id)
        except Exception:
            log.exception("events of payment %s wait", payment_id.hex)
    return done


def _handle_next(payment_id: UUID) -> bool:
    event = None
    try:
        with transaction.atomic():
            # the row lock makes all workers take turns, so the first event that waits is the next one in order
            Payment.objects.select_for_update(no_key=True).get(pk=payment_id)
            event = PaymentEvent.objects.filter(payment_id=payment_id, handled_at__isnull=True).first()
            if event is None:
                return False
            import_string(settings.PAYMENT_EVENT_HANDLER)(event)
            PaymentEvent.objects.filter(pk=event.pk, handled_at__isnull=True).update(handled_at=Now())
    except Exception:
        if event is not None:
            PaymentEvent.objects.filter(pk=event.pk).update(attempts=F("attempts") + 1)
        raise
    return True
