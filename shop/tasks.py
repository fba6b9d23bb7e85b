"""Background work of the shop on the durable queue. No logic of its own.

Every task gets the Unix seconds of the run that the queue scheduled; this machine's clock decides what is due.
None takes the queue's `lock`: a killed worker would keep it, and two runs at once do no harm.
"""

import logging
import time
from collections.abc import Callable
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone
from procrastinate import JobContext, RetryStrategy
from procrastinate.contrib.django import app

from idempotency.maintenance import complete_stalled, reap, resolve_known
from payments.tasks import retry_stalled
from shop import sales as flashsale
from shop.orders import checkout, lifecycle
from shop.web import receipts

log = logging.getLogger(__name__)

BATCH = 20
CLOSING_SECONDS = 50.0  # after which no further order is closed: the next minute's run goes on
SESSIONS_BATCH = 10_000
JOBS_DAYS = 30  # a failed job stays so long for a person
JOBS_BATCH = 1_000
BATCHES_MAX = 100  # a run: a million sessions

# locked, because somebody may be retrying a failed one; the worker removes those that succeed now
_CLEAR_JOBS = """
DELETE FROM procrastinate_jobs WHERE id IN (
    SELECT id FROM procrastinate_jobs AS job
    WHERE status = 'succeeded' OR status IN ('failed', 'cancelled', 'aborted') AND NOT EXISTS (
        SELECT FROM procrastinate_events WHERE job_id = job.id AND at > now() - %s * interval '1 day'
    )
    LIMIT %s FOR UPDATE SKIP LOCKED
)
"""


@app.periodic(cron="* * * * *")
@app.task(name="shop.expire_orders", queueing_lock="shop.expire_orders")
def expire_orders(timestamp: int) -> int:
    """Close orders past their time or cut off in closing; return how many were looked at.

    Time bounds a run, not a number: closing one may wait for a provider's time-out.
    """
    ends_at, seen = time.monotonic() + CLOSING_SECONDS, set[UUID]()
    while time.monotonic() < ends_at:
        due = [one for one in lifecycle.due_for_closing(now=timezone.now(), limit=BATCH) if one not in seen]
        for order_id in due:
            _close(order_id)
        seen.update(due)
        if len(due) < BATCH:
            break
    return len(seen)


def _close(order_id: UUID) -> None:
    try:
        status = lifecycle.expire(order_id=order_id)
    except Exception:
        # one order's trouble must not keep the others open; it comes up again after them
        log.exception("order %s could not be closed", order_id.hex)
    else:
        log.info("order %s is past its time: %s", order_id.hex, status)


# for hours, also where the database was away
@app.task(name="shop.send_receipt", retry=RetryStrategy(max_attempts=8, exponential_wait=4))
def send_receipt(order_id: str) -> None:
    """Send the receipt of a paid order; `order_id`: 32 hexadecimal characters."""
    receipts.send(order_id=UUID(order_id))


@app.periodic(cron="*/5 * * * *")
@app.task(name="shop.take_up_receipts", queueing_lock="shop.take_up_receipts", pass_context=True)
async def take_up_receipts(context: JobContext, timestamp: int) -> int:
    """Retry the receipts of a killed worker, every five minutes; return how many."""
    return await retry_stalled(context, send_receipt)


@app.periodic(cron="* * * * *")
@app.task(name="shop.sweep_flash_sales", queueing_lock="shop.sweep_flash_sales")
def sweep_flash_sales(timestamp: int) -> int:
    """Make Redis agree with the database about sales; return how many buyers it got wrong."""
    repaired = 0
    for sale in flashsale.running():
        if found := flashsale.reconcile(sale=sale):
            log.warning("flash sale %s: Redis was wrong about %s buyers", sale.pk, found)
            repaired += found
    return repaired


@app.periodic(cron="47 * * * *")
@app.task(name="shop.clear_sessions", queueing_lock="shop.clear_sessions")
def clear_sessions(timestamp: int) -> int:
    """Delete expired sessions in batches; return how many. Guests have one from a form on."""
    over = Session.objects.filter(expire_date__lt=timezone.now()).values_list("pk", flat=True)

    def remove() -> int:
        return Session.objects.filter(pk__in=list(over[:SESSIONS_BATCH])).delete()[0]

    return _remove_all(remove, batch=SESSIONS_BATCH)


@app.periodic(cron="53 * * * *")
@app.task(name="shop.clear_jobs", queueing_lock="shop.clear_jobs")
def clear_jobs(timestamp: int) -> int:
    """Remove jobs that failed `JOBS_DAYS` ago, batch by batch; return how many."""
    with connection.cursor() as cursor:

        def remove() -> int:
            cursor.execute(_CLEAR_JOBS, [JOBS_DAYS, JOBS_BATCH])
            return int(cursor.rowcount)

        return _remove_all(remove, batch=JOBS_BATCH)


def _remove_all(remove: Callable[[], int], *, batch: int) -> int:
    """Call `remove`, each time in a commit of its own, until it finds less than a batch."""
    removed = 0
    for _ in range(BATCHES_MAX):
        found = remove()
        removed += found
        if found < batch:
            break
    return removed


@app.periodic(cron="17 * * * *")
@app.task(name="shop.reap_ledger", queueing_lock="shop.reap_ledger")
def reap_ledger(timestamp: int) -> dict[str, int]:
    """Remove answers and keys that are past their time (`idempotency.maintenance.reap`)."""
    removed = reap()
    log.info("reaped %s", removed)
    return removed


@app.periodic(cron="* * * * *")
@app.task(name="shop.complete_stalled", queueing_lock="shop.complete_stalled")
def complete_ledger(timestamp: int) -> dict[str, int]:
    """Continue requests that nobody retries, and end those whose outcome has become known.

    Returns:
        Counts by result, as `idempotency.maintenance.completer.complete_stalled` has them, and `settled`.
    """
    settled = resolve_known(is_known=checkout.is_known)
    return complete_stalled() | ({"settled": settled} if settled else {})
