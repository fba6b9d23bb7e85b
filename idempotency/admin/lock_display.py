"""Locks of a name as operators see them: who holds each kind, since when, and who waits. Asked of the servers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from idempotency.admin.labels import utc
from idempotency.conf import config
from idempotency.locks import FairLock, LockError, Owner, ReadWriteLock, State
from idempotency.locks.postgres import AdvisoryLock

KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "lock": ("Lock, FairLock", FairLock),
    "read": ("ReadWriteLock, readers", lambda name: ReadWriteLock(name).read),
    "write": ("ReadWriteLock, writer", lambda name: ReadWriteLock(name).write),
    "advisory": ("AdvisoryLock", lambda name: AdvisoryLock(name, using=config().database)),
}
OF_REDIS = ("lock", "read", "write")  # these can be released by force


@dataclass(frozen=True, slots=True)
class ShownLock:
    """Lock of one kind.

    Attributes:
        kind: a key of `KINDS`; `words` is its label.
        state: None where the server did not say.
        error: why it did not.
    """

    kind: str
    words: str
    state: State | None
    error: str = ""

    @property
    def is_releasable(self) -> bool:
        """True if an operator can take it from its holder."""
        return self.kind in OF_REDIS


def shown(name: str) -> list[ShownLock]:
    """Ask for every kind of lock with this name; leave out those that nobody holds or waits for.

    Raises:
        ValueError: no lock can have this name.
    """
    kinds = KINDS if config().uses_redis else KINDS.keys() - OF_REDIS
    return [lock for kind in kinds if (lock := _shown(kind, name)).error or _is_used(lock.state)]


def owner_of(kind: str, name: str, token: int) -> Owner | None:
    """Return the holder of `token`, if it still has the lock."""
    state = _shown(kind, name).state
    return next((owner for owner in state.owners if owner.token == token), None) if state else None


def release(kind: str, name: str, token: int) -> bool:
    """Take a lock of Redis from the holder of `token`; return whether it was held under it.

    Raises:
        LockUnavailable: Redis did not reply; ask again who holds it.
    """
    return bool(KINDS[kind][1](name).force_release(token=token))


def in_words(owner: Owner) -> str:
    """Describe a holder in one line."""
    count = "once" if owner.holds == 1 else f"{owner.holds} times"
    token = owner.token or "unknown"
    return f"{owner.name} since {utc(owner.since)} UTC, {count}, {lease_left(owner)}, token {token}"


def lines(lock: ShownLock) -> list[str]:
    """Describe a lock, its holders and its queue, a line each."""
    if lock.state is None:
        return [f"{lock.words}: {lock.error}"]
    holders = [f"  held by {in_words(owner)}" for owner in lock.state.owners]
    queue = [f"  {place}. in the queue: {waiter}" for place, waiter in enumerate(lock.state.waiters, start=1)]
    return [lock.words, *holders, *queue]


def lease_left(owner: Owner) -> str:
    """Say how long its lease still lasts."""
    seconds = owner.remaining_seconds
    return "as long as its session" if seconds == math.inf else f"{seconds:.0f} s left"


def _shown(kind: str, name: str) -> ShownLock:
    words, make = KINDS[kind]
    try:
        return ShownLock(kind, words, make(name).state())
    except LockError as error:
        return ShownLock(kind, words, None, str(error))


def _is_used(state: State | None) -> bool:
    return state is not None and bool(state.owners or state.waiters)
