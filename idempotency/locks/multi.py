"""`MultiLock`: several locks as one, all or nothing.

They are taken in the order of their names, so two that want the same ones never wait for each other.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.steps import DEFAULT, Finish, On, Steps, deadline_of, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.mutex import AsyncLock, Lock, Mutex, Several, released


class SeveralLocks(Several):
    """Source of both faces. A question is asked of each lock; its holder is the caller that has them all.

    Args:
        locks: any of `Lock`, `FairLock`, `WriteLock` and their like, of different names; their own waiting times
            do not count.
        wait_seconds: for all of them together: None for ever, 0 not at all.
        raise_on_lost: as of `Lock`.
    """

    _lock: type[Any]

    def __init__(
        self, locks: Sequence[Any], *, wait_seconds: float | None = None, raise_on_lost: bool = True
    ) -> None:
        if not locks:
            raise ValueError("a MultiLock needs at least one lock")
        self.locks = sorted(locks, key=lambda lock: (lock.name, lock._prefix or ""))
        name = ", ".join(lock.name for lock in self.locks)
        super().__init__(name, wait_seconds=wait_seconds, raise_on_lost=raise_on_lost)
        self.quorum = len(self.locks)
        self.client = self.locks[0].client

    @classmethod
    def of(cls, names: Sequence[str], *, client: Any = None, wait_seconds: float | None = None) -> Self:
        """Make one of plain locks with these names; one named twice counts once."""
        return cls([cls._lock(name, client=client) for name in set(names)], wait_seconds=wait_seconds)

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take them all, or none: return False when the time was over, or raise `LockUnavailable`."""
        deadline = deadline_of(self._limit(wait_seconds))
        while (yield from self._all_or_nothing(partial(self._each, deadline))):
            if not self.lost:
                return True
            # a lease ended while the next lock was waited for
            yield Finish(released(self.locks))
            if time.monotonic() >= deadline:
                return False
        return False

    def _each(self, deadline: float, taken: list[Any]) -> Steps[bool]:
        """Take one lock after another, until one is not free in time."""
        for lock in self.locks:
            left = max(0.0, deadline - time.monotonic())
            if not (yield On(lock, Mutex.acquire.steps(lock, wait_seconds=left))):
                return False
            taken.append(lock)
        return True

    @operation
    def release(self) -> Steps[None]:
        """Give them all back; the first error of one, as of `Lock`, is raised when all were tried."""
        if errors := (yield Finish(released(self.locks))):
            raise errors[0]

    @property
    def held(self) -> bool:
        """True while the caller holds all of them."""
        return all(lock.held for lock in self.locks)

    @property
    def lost(self) -> bool:
        """True if the caller has lost any of them."""
        return any(lock.lost for lock in self.locks)


class MultiLock(OnThreads, WithStatement, SeveralLocks):
    """Several locks as one, for threads; see `SeveralLocks` for its arguments."""

    _lock = Lock


class AsyncMultiLock(OnTasks, AsyncWithStatement, SeveralLocks):
    """`MultiLock` for asyncio."""

    _lock = AsyncLock
