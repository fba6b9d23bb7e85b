"""Locks and limits that all processes share on Redis, while it answers; while it does not, work is done without.

Only for what spares work or protects others from too much of it: whether something may happen at all, and how
often, is decided by the database's constraints. A Redis that is away costs a time-out, a log line and a count, and
then its breaker (the one of `idempotency.redis.fastpath`) keeps this process from asking for a while.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import Counter

from idempotency.locks import LockError, LockUnavailable, NotHeld
from idempotency.redis import fastpath

log = logging.getLogger(__name__)

UNSHARED = Counter(
    "payonce_unshared", "Times that something was done without its lock or limit: no answer from Redis.", ["what"]
)

T = TypeVar("T")


def shared(what: str, ask: Callable[[Any], T], *, otherwise: T) -> T:
    """What `ask` answers; `otherwise` while Redis is away or switched off.

    Args:
        what: the lock or limit, as the metric and the log name it.
        ask: given a redis-py client, asks for it.
        otherwise: what it means not to have it. The caller says why that is safe.

    Raises:
        LockError: as `ask` does, except `LockUnavailable`.
    """
    if not fastpath.may_ask():
        UNSHARED.labels(what).inc()
        return otherwise
    try:
        return _asked(ask)
    except LockUnavailable as error:
        # safe because nothing that is shared here keeps a promise: see the module
        _without(what, error)
        return otherwise


def give_back(what: str, release: Callable[[Any], None]) -> None:
    """Release what `shared` gave. Never raises for what became of it: the work that it was for is done.

    Asked even while the breaker is open: what is not given back is missing until its lease ends.
    """
    try:
        _asked(release)
    except NotHeld as lost:
        log.warning("%s: more may have run at once than should: %s", what, lost)
    except LockUnavailable as error:
        _without(what, error)  # safe: the lease ends it


def client_to_listen() -> Any | None:
    """A client for what connects by itself and goes on trying, as `Topic.listen` does; None while there is none.

    Nothing is left out by that, so it does not count; nor has Redis answered, so it does not close the breaker.
    """
    if not fastpath.may_ask():
        return None
    try:
        return _client()
    except LockUnavailable as error:
        fastpath.failed(error)
        return None


def _asked(ask: Callable[[Any], T]) -> T:
    probing = not fastpath.breaker.is_closed  # else it may only have been told, and no answer says anything
    try:
        answer = ask(_client())
    except LockUnavailable:
        raise
    except LockError:
        if probing:
            fastpath.breaker.succeeded()  # a refusal is an answer
        raise
    if probing:
        fastpath.breaker.succeeded()
    return answer


def _without(what: str, error: LockUnavailable) -> None:
    fastpath.failed(error)
    UNSHARED.labels(what).inc()
    log.warning("%s: done without it: %s", what, error)


def _client() -> Any:
    """A client for locks; raises `LockUnavailable` where making it asks a server that is away."""
    try:
        return fastpath.client()
    except fastpath.FAILURES as error:
        raise LockUnavailable(f"No client: {type(error).__name__}") from error
