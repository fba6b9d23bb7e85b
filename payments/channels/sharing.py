"""Locks and limits on Redis, for all processes; without Redis, work goes on.

Only for what spares work or limits load: the database's constraints decide everything else. A Redis that is away,
or denies its user a command, costs a time-out, a log line and a count; then its breaker (of
`idempotency.redis.fastpath`) keeps this process from asking for a while.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import Counter

from idempotency.locks import LockError, LockTimeout, LockUnavailable, NotHeld
from idempotency.redis import fastpath

log = logging.getLogger(__name__)

UNSHARED = Counter(
    "payonce_unshared", "Times that something was done without its lock or limit: no answer from Redis.", ["what"]
)

_REFUSALS = (LockTimeout, NotHeld)  # which are answers

T = TypeVar("T")


def shared(what: str, ask: Callable[[Any], T], *, otherwise: T) -> T:
    """Return the answer of `ask`; `otherwise` while Redis is away or switched off.

    Args:
        what: the lock or limit, as the metric and the log name it.
        ask: given a redis-py client, asks for it. What it raises of LockTimeout and NotHeld is raised.
        otherwise: the answer without it. The caller's comment says why that is safe.
    """
    if not fastpath.may_ask():
        UNSHARED.labels(what).inc()
        return otherwise
    try:
        return _asked(ask)
    except _REFUSALS:
        raise
    except LockError as error:
        # safe because no promise rests on what is shared here: see the module
        _without(what, error)
        return otherwise


def give_back(what: str, release: Callable[[Any], None]) -> None:
    """Release what `shared` gave, also while the breaker is open. Never raises."""
    try:
        _asked(release)
    except NotHeld as lost:
        log.warning("%s: more may have run at once than should: %s", what, lost)
    except LockError as error:
        _without(what, error)  # safe: the lease ends it


def _asked(ask: Callable[[Any], T]) -> T:
    probing = not fastpath.breaker.is_closed  # else a send_nowait proves nothing
    try:
        answer = ask(_client())
    except _REFUSALS:
        if probing:
            fastpath.breaker.succeeded()
        raise
    if probing:
        fastpath.breaker.succeeded()
    return answer


def _without(what: str, error: LockError) -> None:
    fastpath.failed(error)
    UNSHARED.labels(what).inc()
    log.warning("%s: done without it: %s", what, error)


def _client() -> Any:
    """Make a client for locks; raises `LockUnavailable` where that asks a server that is away."""
    try:
        return fastpath.client()
    except fastpath.FAILURES as error:
        raise LockUnavailable(f"No client: {type(error).__name__}") from error
