"""Ends what nobody retries: stalled entries whose handler is made of recovery points (`idempotency.recovery`).

Run it every minute or so: ``manage.py idempotency complete``, or `complete_stalled` from a periodic task. Several
may run at once: an entry is taken over by a compare-and-set, like by a retry.
"""

import logging
from collections.abc import Callable

from django.http.response import HttpResponseBase

from idempotency import ledger, logs, metrics
from idempotency.errors import Problem, problem_response
from idempotency.phases import PhasedExchange
from idempotency.recovery import LeaseLost, known_names, phases_named

log = logging.getLogger(__name__)

RUNS_MAX = 20  # after that a person has to look
IDLE_SECONDS = 30.0  # so that the client's own retry comes first
BATCH = 100


def complete_stalled(
    *,
    limit: int = 1_000,
    idle_seconds: float = IDLE_SECONDS,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, int]:
    """Run up to `limit` stalled entries again, each from its last recovery point.

    Args:
        limit: bound of this call; a next call goes on.
        idle_seconds: entries whose lease is over for less are left to their client.
        on_progress: called with the number of entries seen so far.

    Returns:
        How many by result: `finished`, `uncertain`, `forgotten` (nothing had been done), `failed`, `taken`.
    """
    results: dict[str, int] = {}
    after_id, seen = 0, 0
    while seen < limit:
        batch = ledger.stalled(
            handlers=known_names(),
            runs_max=RUNS_MAX,
            idle_seconds=idle_seconds,
            after_id=after_id,
            limit=min(BATCH, limit - seen),
        )
        if not batch:
            break
        for entry in batch:
            result = _complete(entry)
            metrics.resumed.labels(result).inc()
            results[result] = results.get(result, 0) + 1
            seen += 1
            on_progress(seen)
        after_id = batch[-1].entry_id
    return results


def _complete(entry: ledger.Found) -> str:
    logs.unbind()
    exchange = PhasedExchange.of_entry(entry, request_id="completer")
    phases = phases_named(entry.handler)
    if phases is None or not exchange.resume(entry) or exchange.run is None:
        return "taken"
    if not entry.recovery_point:
        ledger.forget(exchange.run)  # its first step never committed
        return "forgotten"
    response: HttpResponseBase
    try:
        response = phases.run(exchange, {})
    except LeaseLost:
        return "taken"
    except Problem as problem:
        response = problem_response(problem, None)
    except Exception:
        exchange.fail()
        log.exception("A stalled entry could not be completed; it is tried again later.")
        return "failed"
    status = exchange.finish(response).status_code
    if status >= 500:
        return "failed"
    return "finished" if exchange.settled else "uncertain"
