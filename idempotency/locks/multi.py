"""`MultiLock`: several locks as one, all or nothing.

They are taken in the order of their names, so two that want the same ones never wait for each other.
"""

import math
import time
from collections.abc import Collection, Sequence
from copy import copy
from functools import partial
from itertools import count
from typing import Any, Self, Unpack

from idempotency.locks.engine.contexts import AsyncWithStatement, Common, WithStatement
from idempotency.locks.engine.steps import DEFAULT, Finish, On, Steps, deadline_of, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.mutex import AsyncLock, Lock, Mutex, Several, released


class SeveralLocks(Several):
    """Source of both faces. Each lock is asked; the holder is the caller that has them all.

    Args:
        locks: any of `Lock`, `FairLock`, `WriteLock` and their like, of different names; their own waiting times
            do not count.
        settings: as of `Lock`, for all of them together. Its listeners hear of the first end among the locks
            that it took, with that one's token; theirs as well.
    """

    _lock: type[Any]

    def __init__(self, locks: Sequence[Any], **settings: Unpack[Common]) -> None:
        face = OnThreads if isinstance(self, OnThreads) else OnTasks
        if not (isinstance(locks, Collection) and locks) or not all(
            isinstance(lock, Mutex) and isinstance(lock, face) for lock in locks
        ):
            raise ValueError("a MultiLock needs locks of Redis, at least one, each for threads or tasks as it is")
        # copies: the caller's own keep their owner, and do not call our listeners
        self.locks = sorted(map(copy, locks), key=lambda lock: (lock.name, lock._prefix or ""))
        super().__init__(", ".join(lock.name for lock in self.locks), **settings)
        self.quorum = len(self.locks)
        self._join()

    @classmethod
    def of(
        cls, names: Sequence[str], *, client: Any = None, prefix: str | None = None, **settings: Unpack[Common]
    ) -> Self:
        """Make one of plain locks with these names; one named twice counts once."""
        if isinstance(names, str):
            raise ValueError(f"names must be a list of names, not the one text {names!r}")
        return cls([cls._lock(name, client=client, prefix=prefix) for name in set(names)], **settings)

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take them all, or none: return False when the time was over, or raise `LockUnavailable`."""
        deadline, cancels = deadline_of(self._limit(wait_seconds)), self._cancels
        while (yield from self._all_or_nothing(partial(self._each, deadline, cancels))):
            self._left[self._holder().name] = count(self.quorum - 1, -1)
            if not self.lost:
                return True
            del self._left[self._holder().name]
            # a lease ended while the next lock was waited for
            yield Finish(released(self.locks))
            if time.monotonic() >= deadline or self._cancels != cancels:
                break
        return False

    def _each(self, deadline: float, cancels: int, taken: list[Any]) -> Steps[bool]:
        """Take one lock after another, until one is not free in time."""
        for lock in self.locks:
            left = deadline - time.monotonic() if self._cancels == cancels else 0.0
            wait_seconds = None if math.isinf(left) else left
            if not (yield On(lock, Mutex.acquire.steps(lock, wait_seconds=wait_seconds))):
                return False
            taken.append(lock)
        return True

    @operation
    def release(self) -> Steps[None]:
        """Give them all back; the first error of one, as of `Lock`, is raised when all were tried."""
        if errors := (yield from self._give_back(self.locks)):
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
