"""Completer of stalled entries that no client retries, by their recovery points.

Run it every minute or so: ``manage.py idempotency complete``, or `complete_stalled` from a periodic task. Several
may run at once: an entry is taken over by a compare-and-set, like by a retry.
"""

import logging
from collections.abc import Callable

from django.http.response import HttpResponseBase

from idempotency import ledger
from idempotency.errors import Problem, problem_response
from idempotency.maintenance import request_log
from idempotency.observability import logs, metrics
from idempotency.postgres import home
from idempotency.protocol.phases import LeaseLost, PhasedExchange
from idempotency.protocol.recovery import Phases, declared
from idempotency.response.answers import UNCERTAIN_STATUS

log = logging.getLogger(__name__)

RUNS_MAX = 20  # of ours that failed or lost their lease: after half a day a person has to look
IDLE_SECONDS = 30.0  # so that the client's own retry comes first
LONGEST_SECONDS = 3600.0  # between two runs of an entry that stays open: a provider may take days over a refund
REQUEST_ID = "completer"  # for people; a caller may send the same
OWNER = "completer "  # prefix of the owner of our own runs: no header reaches it
BATCH = 100


def complete_stalled(
    *,
    limit: int = 1_000,
    idle_seconds: float = IDLE_SECONDS,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, int]:
    """Run stalled entries again from their last recovery points, and store the request log.

    Args:
        limit: bound of this call; a next call goes on.
        idle_seconds: entries that ran within this time are left to their client. It doubles with every run that
            leaves the entry open, up to `LONGEST_SECONDS`; 0 runs all of them at once.
        on_progress: called with the number of entries seen so far.

    Returns:
        How many by result: `finished`, `uncertain`, `forgotten` (nothing had been done), `failed`, `taken`.
    """
    results: dict[str, int] = {}
    if home.has_no_ledger():
        log.warning(home.NO_LEDGER)
        return results
    request_log.store()
    after_id, seen = 0, 0
    while seen < limit:
        batch = ledger.stalled(
            handlers=list(declared),
            runs_max=RUNS_MAX,
            asker=OWNER,
            idle_seconds=idle_seconds,
            longest_seconds=max(idle_seconds, LONGEST_SECONDS),
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


def _complete(entry: ledger.Entry) -> str:
    logs.unbind()
    phases = declared[entry.handler]
    exchange = PhasedExchange.of_entry(entry, asker=OWNER, request_id=REQUEST_ID, redact=phases.redact)
    if not exchange.resume(entry) or exchange.run is None:
        return "taken"
    if not entry.recovery_point:
        return "forgotten" if ledger.forget(exchange.run) else "failed"  # its first step never committed
    try:
        status = exchange.finish(_run(phases, exchange)).status_code
    except LeaseLost:
        return "taken"
    except Exception:
        exchange.fail()
        log.exception("A stalled entry could not be completed; it is tried again later.")
        return "failed"
    if exchange.is_finished:
        return "finished"
    return "uncertain" if status == UNCERTAIN_STATUS else "failed"


def _run(phases: Phases, exchange: PhasedExchange) -> HttpResponseBase:
    try:
        return phases.run(exchange, {})
    except Problem as problem:
        return problem_response(problem, None)
