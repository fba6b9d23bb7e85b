"""Reaper of old bytes (`BODY_SECONDS`) and keys (`TOMBSTONE_SECONDS`), in bounded batches.

Run it once an hour or so: ``manage.py idempotency reap``, or `reap` from a periodic task. Any number may run at
once. Unfinished entries are never touched, however old.
"""

import logging
from collections.abc import Callable

from idempotency import ledger
from idempotency.maintenance import request_log
from idempotency.observability import metrics
from idempotency.postgres import home
from idempotency.webhooks import applying

log = logging.getLogger(__name__)

# of other apps, by what it removes: takes ``limit`` and returns how many; registered in `AppConfig.ready`
others: dict[str, Callable[..., int]] = {}

BATCH = 1_000
BATCHES_MAX = 10_000  # of each kind: a call ends, and a next one goes on


def reap(
    *,
    batch: int = BATCH,
    batches_max: int = BATCHES_MAX,
    on_progress: Callable[[str, int], object] = lambda *_: None,
) -> dict[str, int]:
    """Remove everything that is due, in batches, and record that this was done.

    The request log is stored first (`request_log.store`), so that a key's lines go with its entry.

    Args:
        batch: rows a transaction.
        batches_max: bound of this call.
        on_progress: called with the kind and its count so far, after every batch.

    Returns:
        How many `bodies`, `tombstones`, `messages`, `log lines`, of webhooks `event bodies` and `events`, and of
        the `others` were removed.
    """
    steps = {
        "bodies": ledger.purge_bodies,
        "tombstones": ledger.drop_tombstones,
        "messages": ledger.drop_messages,
        "log lines": request_log.drop_old,
        "event bodies": applying.purge_bodies,
        "events": applying.drop,
        **others,
    }
    removed = dict.fromkeys(steps, 0)
    if home.has_no_ledger():
        log.warning(home.NO_LEDGER)
        return removed
    request_log.store()
    for what, step in steps.items():
        for _ in range(batches_max):
            count = step(limit=batch)
            removed[what] += count
            on_progress(what, removed[what])
            if count < batch:
                break
        metrics.reaped.labels(what).inc(removed[what])
    ledger.note_reaping()
    return removed
