"""Background work of the shop on the durable queue: closing unpaid orders, sweeping. No logic of its own.

None of it takes the queue's `lock`: a worker that is killed would keep it, and two runs at once do no harm.
"""

import logging
import time
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone
from procrastinate.contrib.django import app

from idempotency.maintenance.completer import complete_stalled
from idempotency.maintenance.reaper import reap
from idempotency.maintenance.settling import settle_known
from shop import sales as flashsale
from shop.orders import checkout, lifecycle

log = logging.getLogger(__name__)

BATCH = 20
CLOSING_SECONDS = 50.0  # after which no further order is closed: the next minute's run goes on
SESSIONS_BATCH = 10_000
SESSIONS_BATCHES_MAX = 100  # a million in one run; what is left, the next one takes
JOBS_DAYS = 30  # how long a job that failed is there to be looked at
JOBS_BATCH = 1_000
JOBS_BATCHES_MAX = 100

# locked, because somebody may just be having a failed one done again; what succeeded is of earlier workers
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
    """Close orders that are past their time or whose closing was cut off, each in its own commits, for a minute.

    Closing one may wait for a provider's time-out, so it is time that bounds a run, and not a number.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled; the clock of this machine decides what is due.

    Returns:
        How many orders were looked at.
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
        # one order's trouble must not keep the others open; it comes up again when the others had their turn
        log.exception("order %s could not be closed", order_id.hex)
    else:
        log.info("order %s is past its time: %s", order_id.hex, status)


@app.periodic(cron="* * * * *")
@app.task(name="shop.sweep_flash_sales", queueing_lock="shop.sweep_flash_sales")
def sweep_flash_sales(timestamp: int) -> int:
    """Every minute: up to `BATCH` running sales as Redis counts them, made equal to the database.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled; the clock of this machine decides what runs.

    Returns:
        How many buyers Redis had too many or too few.
    """
    repaired = 0
    for sale in flashsale.running(now=timezone.now(), limit=BATCH):
        if found := flashsale.reconcile(sale=sale):
            log.warning("flash sale %s: Redis was wrong about %s buyers", sale.pk, found)
            repaired += found
    return repaired


@app.periodic(cron="47 * * * *")
@app.task(name="shop.clear_sessions", queueing_lock="shop.clear_sessions")
def clear_sessions(timestamp: int) -> int:
    """Once an hour: remove sessions that are over; a guest has one as soon as he may put something into a basket.

    One batch after the other, each in a commit of its own.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.

    Returns:
        How many were removed.
    """
    over = Session.objects.filter(expire_date__lt=timezone.now()).values_list("pk", flat=True)
    removed = 0
    for _ in range(SESSIONS_BATCHES_MAX):
        batch = list(over[:SESSIONS_BATCH])
        removed += Session.objects.filter(pk__in=batch).delete()[0]
        if len(batch) < SESSIONS_BATCH:
            break
    return removed


@app.periodic(cron="53 * * * *")
@app.task(name="shop.clear_jobs", queueing_lock="shop.clear_jobs")
def clear_jobs(timestamp: int) -> int:
    """Once an hour: remove jobs that ended badly `JOBS_DAYS` ago; the worker itself removes what succeeded.

    One batch after the other, each in a commit of its own.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.

    Returns:
        How many were removed.
    """
    removed = 0
    with connection.cursor() as cursor:
        for _ in range(JOBS_BATCHES_MAX):
            cursor.execute(_CLEAR_JOBS, [JOBS_DAYS, JOBS_BATCH])
            removed += cursor.rowcount
            if cursor.rowcount < JOBS_BATCH:
                break
    return removed


@app.periodic(cron="17 * * * *")
@app.task(name="shop.reap_ledger", queueing_lock="shop.reap_ledger")
def reap_ledger(timestamp: int) -> dict[str, int]:
    """Once an hour: remove answers and keys that are past their time; see `idempotency.maintenance.reaper.reap`.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.
    """
    removed = reap()
    log.info("reaped %s", removed)
    return removed


@app.periodic(cron="* * * * *")
@app.task(name="shop.complete_stalled", queueing_lock="shop.complete_stalled")
def complete_ledger(timestamp: int) -> dict[str, int]:
    """Every minute: go on with requests that nobody retries, and end those whose outcome has become known.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.

    Returns:
        How many by result: as `idempotency.maintenance.completer.complete_stalled` has them, and `settled`.
    """
    settled = settle_known(is_known=checkout.is_known)
    return complete_stalled() | ({"settled": settled} if settled else {})
