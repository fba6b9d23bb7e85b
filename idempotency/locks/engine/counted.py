"""Base of reentrant locks that end with a session, not with a lease: of PostgreSQL and ZooKeeper."""

import threading
from dataclasses import dataclass, field
from typing import Any

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import DEFAULT, Entered
from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.errors import LockLost, NotHeld
from idempotency.locks.state import Asked


@dataclass(eq=False)
class Desk:
    """Holds of a process: by process (a fork's child holds nothing), resource and holder.

    Attributes:
        guard: of the holds and their counts. A hold has a `holder`, a `count` and a `token`.
    """

    guard: threading.Lock = field(default_factory=threading.Lock)
    holds: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def pop_dead(self) -> list[Any]:
        """Take out the holds of this process's threads and tasks that are gone: they cannot release."""
        with self.guard:
            ours = [key for key in self.holds if key[0] == holder.process()]
            return [self.holds.pop(key) for key in ours if not self.holds[key].holder.alive()]


class Counted(Asked, Entered):
    """Lock of a holder that may take it several times.

    A thread or task that ends without a release leaves it locked until its session ends, or any such lock is
    acquired there.
    """

    def __init__(self, name: str, *, owner: str | None, wait_seconds: float | None, raise_on_lost: bool) -> None:
        self.name = name
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds
        self._raise_on_lost = raise_on_lost
        self._waits: set[Any] = set()

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take the lock, once more if the caller holds it already. Return False when the time was over.

        Args:
            wait_seconds: instead of the constructor's. A silent server may take longer, but not for ever.

        Raises:
            LockError: a connection pooler stands before PostgreSQL.
            LockLost: the caller held it already, and its session ended since; release it first.
            LockUnavailable: the server did not reply, or the client is stopped; nothing is held or queued.
            kazoo.exceptions.KazooException: ZooKeeper refuses, as without rights to the nodes.
        """
        desk, key = self._desk(), self._key()
        self._abandon(desk.pop_dead())
        with desk.guard:
            if hold := desk.holds.get(key):
                if self._has_ended(hold):
                    raise self._lost()
                hold.count += 1
                return True
        hold = yield from self._take(self._limit(wait_seconds))
        if hold is not None:
            with desk.guard:
                desk.holds[key] = hold
        return hold is not None

    @operation
    def release(self) -> Steps[None]:
        """Give the lock back, or one acquire of several.

        Raises:
            NotHeld: the caller does not hold it; nothing changed.
            LockLost: the caller held it, but its session ended before.
            LockUnavailable: ZooKeeper did not reply; its node goes when it does again, or with the session.
        """
        desk, key = self._desk(), self._key()
        with desk.guard:
            hold = desk.holds.get(key)
            if hold is None:
                raise NotHeld(f"{self.name!r} is not held by this thread, task or owner.")
            hold.count -= 1
            if last := hold.count == 0:
                del desk.holds[key]
        whole = (yield from self._give_back(hold)) if last else not self._has_ended(hold)
        if not whole:
            raise self._lost()

    @operation
    def cancel(self) -> Steps[None]:
        """End every wait through this object, in whatever thread: as if its time were over."""
        for wait in list(self._waits):
            yield from self._cancel(wait)

    @property
    def held(self) -> bool:
        """True while the caller holds it, as far as this process knows without asking."""
        hold = self._hold()
        return hold is not None and not self._may_be_lost(hold)

    @property
    def lost(self) -> bool:
        """True if another may hold it, because the caller's session ended: stop the work.

        With ZooKeeper also while it is not connected, which may pass: the server has not given it away if the
        connection comes back in time.
        """
        hold = self._hold()
        return hold is not None and self._may_be_lost(hold)

    @property
    def token(self) -> int | None:
        """Fencing token of the caller's hold: higher than every earlier holder's. None if not held.

        It is a transaction's number: PostgreSQL's own, or the one that made the node (czxid). It grows as long as
        the cluster or ensemble keeps its data; a restore elsewhere may have fences above it.
        """
        hold = self._hold()
        return None if hold is None else hold.token

    def _holder(self) -> holder.Holder:
        return self._owner or holder.current()

    def _hold(self) -> Any:
        return self._desk().holds.get(self._key())

    def _lost(self) -> LockLost:
        return LockLost(f"{self.name!r} was lost before its release: its session or its node is gone.")

    def _may_be_lost(self, hold: Any) -> bool:
        return self._has_ended(hold)

    def _desk(self) -> Desk:
        raise NotImplementedError

    def _key(self) -> tuple[str, ...]:
        """Return the process, the resource and the holder."""
        raise NotImplementedError

    def _has_ended(self, hold: Any) -> bool:
        """Return whether the session of `hold` is known to have ended."""
        raise NotImplementedError

    def _take(self, wait_seconds: float | None) -> Steps[Any]:
        """Take it from the server; None when the time was over. What waits is in `_waits` meanwhile."""
        raise NotImplementedError

    def _cancel(self, wait: Any) -> Steps[None]:
        """Let the time of a wait be over."""
        raise NotImplementedError

    def _give_back(self, hold: Any) -> Steps[bool]:
        """Give it back to the server; False if it was lost."""
        raise NotImplementedError

    def _abandon(self, holds: list[Any]) -> None:
        """End the holds of the dead."""
        raise NotImplementedError
