"""Base of locks that end with a session, not with a lease: of PostgreSQL and ZooKeeper."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Unpack

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import Common, Entered
from idempotency.locks.engine.steps import DEFAULT, Steps, operation
from idempotency.locks.errors import LockLost, LockUnavailable, UpgradeRefused, not_held
from idempotency.locks.state import Held


class Settings(Common, total=False):
    """Keyword arguments of `Counted`."""

    shared: bool
    reentrant: bool


@dataclass(eq=False, kw_only=True)
class SessionHold:
    """Hold, or wait, that ends with its session. `abandon` stops either."""

    holder: holder.Holder
    shared: bool = False  # with others that are shared
    token: int | None = None
    count: int = 1  # acquires without their releases
    notify: Callable[[str, Any], None] | None = None  # called once, with the end of it and itself

    def over(self, end: str) -> None:
        notify, self.notify = self.notify, None
        if notify is not None:
            notify(end, self)


@dataclass(eq=False)
class Desk:
    """Holds by process (a fork's child holds nothing), resource and holder, the newest last."""

    guard: threading.Lock = field(default_factory=threading.Lock)  # of the holds and their counts
    holds: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)

    def all(self) -> list[Any]:
        return [hold for holds in list(self.holds.values()) for hold in holds]

    def pop_dead(self) -> list[Any]:
        """Remove holds of threads and tasks that have ended: they cannot release."""
        with self.guard:
            ours = [at for at in self.holds if at[0] == holder.process]
            dead = [at for at in ours if not self.holds[at][0].holder.alive()]
            return [hold for at in dead for hold in self.holds.pop(at)]


class Counted(Held, Entered):
    """Lock of a holder that may take it several times.

    A thread or task that ends without a release leaves it locked until its session ends, or any such lock is
    acquired there.

    Args:
        shared: one of many readers; a lock of the same name that is not shared excludes them. A writer may read,
            and has the lock until it has released both; a reader that wants to write is refused.
        reentrant: False: the holder's next acquire waits as everyone's.
        settings: as of `Entered`. A session has no lease, so there is no `on_expired`.
    """

    _unheard = {"expired": "a session has no lease"}
    _desk: Any
    _key: Any  # the process, the resource and the holder
    _take: Any  # steps; None when the time was over. What waits is in `_waits` meanwhile
    _give_back: Any  # steps; False if it was lost

    def __init__(
        self, name: str, *, shared: bool = False, reentrant: bool = True, **settings: Unpack[Common]
    ) -> None:
        super().__init__(name, **settings)
        self._shared, self._reentrant = shared, reentrant

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take the lock, again if the caller holds it already. False when the time was over.

        Args:
            wait_seconds: instead of the constructor's. A silent server may take longer, but not for ever.

        Raises:
            LockError: a connection pooler stands before PostgreSQL.
            LockLost: the caller held it already, and its session ended since; release it first.
            LockUnavailable: the server did not reply, or the client is stopped; nothing is held or queued.
            UpgradeRefused: the caller has it shared, and wants it alone.
            kazoo.exceptions.KazooException: ZooKeeper refuses, as without rights to the nodes.
        """
        desk, key, limit = self._desk(), self._key(), self._limit(wait_seconds)
        for hold in desk.pop_dead():
            hold.abandon()
        newest = next(reversed(desk.holds.get(key, ())), None)
        if newest is not None and newest.ended:  # outside the guard: its listener may want another lock
            raise self._lost()
        with desk.guard:
            if holds := desk.holds.get(key):
                if holds[-1].shared and not self._shared:
                    raise UpgradeRefused(f"{self.name!r}: release the shared lock before you want it alone.")
                if self._reentrant:
                    holds[-1].count += 1
                    return True
        hold = yield from self._take(limit)
        if hold is not None:
            with desk.guard:
                desk.holds.setdefault(key, []).append(hold)
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
            hold = self._hold()
            if hold is None:
                raise not_held(self.name)
            hold.count -= 1
            if is_last := hold.count == 0:
                desk.holds[key].remove(hold)
                if not desk.holds[key]:
                    del desk.holds[key]
        if not is_last:
            if hold.ended:
                raise self._lost()
            return
        try:
            was_held = yield from self._give_back(hold)
        except LockUnavailable:  # nobody knows yet how it ends
            raise
        except BaseException:  # a cancellation: it is given back in any case
            hold.over("released")
            raise
        hold.over("released" if was_held else "lost")
        if not was_held:
            raise self._lost()

    def _hold(self) -> Any:
        hold = next(reversed(self._desk().holds.get(self._key(), ())), None)
        return hold if hold is not None and (self._shared or not hold.shared) else None

    def _lost(self) -> LockLost:
        return LockLost(f"{self.name!r} was lost before its release: its session or its node is gone.")
