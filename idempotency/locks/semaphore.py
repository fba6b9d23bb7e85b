"""`Semaphore` and `PermitExpirableSemaphore`: at most so many at once, in the order of arrival.

The number of permits is an argument of each use, not a value on the server: a deployment that changes it needs no
migration, and while two versions run, each goes by its own number.
"""

import threading
import weakref
from typing import Any, Unpack

from idempotency.locks.engine.contexts import DEFAULT, AsyncWithStatement, WithStatement
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.holds import Hold, bounded
from idempotency.locks.engine.hub import Hub, Resource, renewal
from idempotency.locks.engine.owned import Owned, Settings
from idempotency.locks.engine.places import RELEASE_SECONDS, Places
from idempotency.locks.engine.steps import Steps, insist, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import NotHeld

SWEEP_AT = 100  # owners, beyond twice as many as had permits when it was swept last


class Permits(Owned):
    """Source of both faces of `Semaphore`.

    Args:
        name: any text; the same name is the same semaphore everywhere.
        permits: their number.
        settings: as of `Lock`, but an owner's permits are known to its process alone. A permit is renewed while
            its holder lives, so a killed process gives its permits back.
    """

    _kind = "semaphore"

    def __init__(self, name: str, *, permits: int, **settings: Unpack[Settings]) -> None:
        self.permits = self._capacity = _at_least_one(permits)
        super().__init__(name, **settings)

    @operation
    def acquire(
        self, permits: int = 1, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take `permits` at once; return False when the time was over. Every acquire wants a release."""
        if not 1 <= permits <= self.permits:
            raise ValueError(f"permits must be 1 to {self.permits}, not {permits}")
        hub, own = self.hub(), self._holder()
        slots = _slots_of(hub)
        slot = Holder(slots.name(hub), own.alive)
        hold = yield from self._places.take(
            hub,
            slot,
            shared=permits,
            exclusive=0,
            wait_seconds=self._limit(wait_seconds),
            lease_seconds=self._lease(lease_seconds),
        )
        if hold is None:
            slots.free(slot.name)
        else:
            slots.add(hub, own.name, hold)
        return hold is not None

    @operation
    def release(self) -> Steps[None]:
        """Give back the permits of the caller's last acquire.

        Raises:
            NotHeld: the caller has no permit.
            LockLost: it had, but the lease ended before.
            LockUnavailable: Redis did not reply; the lease ends it.
        """
        holds = self._holds()
        if not holds:
            raise NotHeld(f"The caller has no permit of {self.name!r}.")
        hold = holds[-1]
        yield from self._places.give(self.hub(), hold.holder, shared=hold.shared, exclusive=0, token=hold.token)
        _slots_of(self.hub()).free(hold.owner)

    @property
    def held(self) -> int:
        """Number of permits that the caller has, as far as this process knows without asking."""
        return sum(hold.shared for hold in self._holds() if not hold.lost)

    @property
    def lost(self) -> bool:
        """True if a permit of the caller has ended without a release."""
        return any(hold.lost for hold in self._holds())

    def _holds(self) -> list[Hold]:
        """Return the caller's holds, in the order of their acquires."""
        hub = self.hub()
        return _slots_of(hub).of(hub, self._places.keys[0], self._holder().name)


class _Slots:
    """Permits of the owners at one hub. Thread-safe.

    Each acquire is a holder of its own on the server. Its name there is used again, so that the server has few to
    remember, but only once the server has said that nothing is held under it. After a release or an acquire that
    went unanswered something may be, and an acquire under it would count as the same holder's second one, for
    which nothing needs to be free.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._names: list[str] = []
        self._taken: dict[tuple[str, str], list[Hold]] = {}
        self._sweep_at = SWEEP_AT

    def name(self, hub: Hub) -> str:
        """Return a name under which nothing is held, to one caller only."""
        try:
            return self._names.pop()
        except IndexError:
            return hub.new_request()

    def free(self, name: str) -> None:
        """Note that the server holds nothing under `name`."""
        self._names.append(name)

    def of(self, hub: Hub, key: str, owner: str) -> list[Hold]:
        """Return the holds of `owner` at the semaphore of `key`, in the order of the acquires."""
        return [hold for hold in self._taken.get((key, owner), ()) if hub.holds.get(key, hold.owner) is hold]

    def add(self, hub: Hub, owner: str, hold: Hold) -> None:
        """Note that `owner` has acquired a hold; the hub knows until when."""
        with self._lock:
            self._taken[hold.key, owner] = [*self.of(hub, hold.key, owner), hold]
            if len(self._taken) >= self._sweep_at:
                hub.holds.forget_ended()
                self._taken = {at: left for at in self._taken if (left := self.of(hub, *at))}
                self._sweep_at = 2 * len(self._taken) + SWEEP_AT


_slots: "weakref.WeakKeyDictionary[Hub, _Slots]" = weakref.WeakKeyDictionary()


def _slots_of(hub: Hub) -> _Slots:
    slots = _slots.get(hub)
    return _slots.setdefault(hub, _Slots()) if slots is None else slots


class Semaphore(OnThreads, WithStatement, Permits):
    """Counting permits for threads and processes; see `Permits` for its arguments."""


class AsyncSemaphore(OnTasks, AsyncWithStatement, Permits):
    """`Semaphore` for asyncio."""


class ExpirablePermits(Resource):
    """Source of both faces of `PermitExpirableSemaphore`.

    Args:
        name: any text; another kind of resource than a `Semaphore` of that name.
        permits: their number.
        client, release_seconds: as of `Lock`.
    """

    _kind = "permits"

    def __init__(
        self, name: str, *, permits: int, client: Any = None, release_seconds: float = RELEASE_SECONDS
    ) -> None:
        super().__init__(name, client=client)
        self.permits = _at_least_one(permits)
        self._places = Places(kind=self._kind, name=name, capacity=permits, release_seconds=release_seconds)

    @operation
    def acquire(self, *, lease_seconds: float, wait_seconds: float | None = None) -> Steps[str | None]:
        """Take one permit that ends by itself after `lease_seconds`, at most 1e9 (31 years).

        Returns:
            Its name, with which anyone may give it back or prolong it; None when the time was over.
        """
        hub = self.hub()
        permit = Holder(hub.new_request(), lambda: True)
        hold = yield from self._places.take(
            hub,
            permit,
            shared=1,
            exclusive=0,
            wait_seconds=wait_seconds,
            lease_seconds=lease_seconds,
            watched=False,
        )
        return None if hold is None else f"{permit.name}@{hold.token}"

    @operation
    def release(self, permit: str) -> Steps[None]:
        """Give a permit back.

        Raises:
            NotHeld: it has ended, or never was.
            LockUnavailable: Redis did not reply; the lease ends it.
        """
        owner, token = _parsed(permit)
        yield from self._places.give(self.hub(), Holder(owner, lambda: True), shared=1, exclusive=0, token=token)

    @operation
    def prolong(self, permit: str, *, lease_seconds: float) -> Steps[None]:
        """Let a permit last for `lease_seconds` (at most 1e9) from now on, if it does not anyway.

        Raises:
            NotHeld: it has ended, or never was.
        """
        owner, token = _parsed(permit)
        ask = renewal([(self._places.keys[0], owner, token, bounded("lease_seconds", lease_seconds))])
        end, _ = yield from insist(ask, seconds=RELEASE_SECONDS)
        if not end:
            raise NotHeld(f"The permit of {self.name!r} has ended.")


class PermitExpirableSemaphore(OnThreads, ExpirablePermits):
    """Permits that end by themselves and can be given back by anyone. See `ExpirablePermits` for its arguments."""


class AsyncPermitExpirableSemaphore(OnTasks, ExpirablePermits):
    """`PermitExpirableSemaphore` for asyncio."""


def _at_least_one(permits: int) -> int:
    if permits < 1:
        raise ValueError(f"permits must be at least 1, not {permits}")
    return permits


def _parsed(permit: str) -> tuple[str, int]:
    owner, _, token = permit.rpartition("@")
    if not owner or not token.isdigit():
        raise NotHeld(f"{permit!r} is no permit.")
    return owner, int(token)
