"""Background work of the shop on the durable queue: closing unpaid orders, sweeping. No logic of its own.

None of it takes the queue's `lock`: a worker that is killed would keep it, and two runs at once do no harm.
"""

import logging

from django.contrib.sessions.models import Session
from django.utils import timezone
from procrastinate.contrib.django import app

from idempotency.completer import complete_stalled
from idempotency.reaper import reap
from shop import flashsale, orders

log = logging.getLogger(__name__)

# closing one order may wait for a provider's time-out; a batch must end before the next minute's run matters
BATCH = 20
SESSIONS_BATCH = 10_000
SESSIONS_BATCHES_MAX = 100  # a million in one run; what is left, the next one takes


@app.periodic(cron="* * * * *")
@app.task(name="shop.expire_orders", queueing_lock="shop.expire_orders")
def expire_orders(timestamp: int) -> int:
    """Close up to `BATCH` orders that are past their time or whose closing was cut off, each in its own commits.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled; the clock of this machine decides what is due.

    Returns:
        How many orders were looked at.
    """
    due = orders.due_for_closing(now=timezone.now(), limit=BATCH)
    for order_id in due:
        try:
            status = orders.expire(order_id=order_id)
        except Exception:
            # one order's trouble must not keep the others open; it comes up again when the others had their turn
            log.exception("order %s could not be closed", order_id.hex)
        else:
            log.info("order %s is past its time: %s", order_id.hex, status)
    return len(due)


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


@app.periodic(cron="17 * * * *")
@app.task(name="shop.reap_ledger", queueing_lock="shop.reap_ledger")
def reap_ledger(timestamp: int) -> dict[str, int]:
    """Once an hour: remove answers and keys that are past their time; see `idempotency.reaper.reap`.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.
    """
    removed = reap()
    log.info("reaped %s", removed)
    return removed


@app.periodic(cron="* * * * *")
@app.task(name="shop.complete_stalled", queueing_lock="shop.complete_stalled")
def complete_ledger(timestamp: int) -> dict[str, int]:
    """Every minute: go on with requests that nobody retries; see `idempotency.completer.complete_stalled`.

    Args:
        timestamp: Unix seconds of the run that the queue scheduled.
    """
    return complete_stalled()
