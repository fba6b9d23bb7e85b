"""State of a lock on its server: holder, since when, waiters. Reading changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from idempotency.locks.engine.steps import Steps, operation


@dataclass(frozen=True, slots=True)
class Owner:
    """Holder of a lock.

    Attributes:
        name: ``host/process id/random:number`` of a thread or task, or ``named:`` and the `owner` that it gave. An
            expirable permit is its own holder: with ``@`` and the token this is its name.
        token: its fencing token; None where there is none.
        since: when it got the lock, by the server's clock; None where the server does not say.
        remaining_seconds: until its lease ends, if it is not renewed; infinite where a session is the lease.
        holds: acquires without their releases; of a semaphore the permits of one acquire.
    """

    name: str
    token: int | None
    since: datetime | None
    remaining_seconds: float
    holds: int


@dataclass(frozen=True, slots=True)
class State:
    """Holders of a lock, the longest first, and names of waiters in the order of the queue."""

    owners: tuple[Owner, ...]
    waiters: tuple[str, ...]


class Asked:
    """Base of every kind whose server can be asked; each question is as `state`."""

    _state: Callable[[], Steps[State]]

    @operation
    def state(self) -> Steps[State]:
        """Ask who holds it and who waits: one command to each server, and no effect.

        Raises:
            LockUnavailable: the server did not reply.
        """
        return (yield from self._state())

    @operation
    def locked(self) -> Steps[bool]:
        """Ask whether anyone holds it. The answer may be old when it comes."""
        return bool((yield from self._state()).owners)

    @operation
    def owner(self) -> Steps[Owner | None]:
        """Ask who holds it; of several readers, the one that has done so for the longest."""
        return next(iter((yield from self._state()).owners), None)

    @operation
    def waiters(self) -> Steps[int]:
        """Ask how many wait."""
        return len((yield from self._state()).waiters)


class AskedByHolder(Asked):
    """Base of the kinds that a thread, task or owner holds."""

    _holder: Any

    @operation
    def remaining_seconds(self) -> Steps[float]:
        """Ask when the last lease ends, if nobody renews it; 0.0 where nobody holds it."""
        return max((owner.remaining_seconds for owner in (yield from self._state()).owners), default=0.0)

    @operation
    def hold_count(self) -> Steps[int]:
        """Ask how many acquires of the caller are not released; of a semaphore, how many permits."""
        name = self._holder().name
        return sum(owner.holds for owner in (yield from self._state()).owners if owner.name == name)


class Numbered:
    """Base of semaphores."""

    _numbers: Callable[[], Steps[tuple[int, int]]]  # how many permits there are, and how many are out

    @operation
    def total(self) -> Steps[int]:
        """Return the number of permits: the server's, or else the caller's."""
        return (yield from self._numbers())[0]

    @operation
    def acquired(self) -> Steps[int]:
        """Return how many permits are out."""
        return (yield from self._numbers())[1]

    @operation
    def available(self) -> Steps[int]:
        """Return how many permits are free; below 0 where more are out than there are now."""
        total, out = yield from self._numbers()
        return total - out


class Held(AskedByHolder):
    """Base of the locks of which a caller has one hold, known without asking."""

    _hold: Any

    @property
    def token(self) -> int | None:
        """Fencing token of the caller's hold: higher than every earlier holder's. None if not held.

        In PostgreSQL and ZooKeeper it is a transaction's number (of ZooKeeper the node's czxid). It grows as long
        as the cluster or ensemble keeps its data; a restore elsewhere may have fences above it.
        """
        hold = self._hold()
        return None if hold is None else hold.token

    @property
    def held(self) -> bool:
        """True while the caller holds it, as far as this process knows without asking."""
        hold = self._hold()
        return hold is not None and not hold.lost

    @property
    def lost(self) -> bool:
        """True if the caller's hold has ended without a release: stop the work.

        With ZooKeeper also while it is not connected, which may pass: the server has not given it away if the
        connection comes back in time.
        """
        hold = self._hold()
        return hold is not None and hold.lost
