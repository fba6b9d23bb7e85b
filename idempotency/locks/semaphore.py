"""`Semaphore` and `PermitExpirableSemaphore`: so many at once, in the order of arrival."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from django.utils.encoding import force_str

from idempotency.arguments import NUMBER_MAX, bounded, whole_number
from idempotency.locks.engine import contexts
from idempotency.locks.engine.contexts import AsyncWithStatement, Owned, Settings, WithStatement
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.holds import Hold
from idempotency.locks.engine.hub import renewal, script
from idempotency.locks.engine.places import RELEASE_SECONDS, Placed
from idempotency.locks.engine.steps import DEFAULT, Ask, Finish, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import NotHeld, not_held
from idempotency.locks.state import Numbered

_PERMITS = script("places", "permits")


class Totals(Numbered, Placed):
    """Verbs of both semaphores. Without a total on the server the caller's `permits` counts."""

    @operation
    def set_total(self, permits: int | None, *, if_absent: bool = False) -> Steps[bool]:
        """Store the number of permits on the server, for all callers. Return if it was stored.

        Args:
            permits: may be less than are out. None: each caller's own number counts again.
            if_absent: leave one that is stored as it is.
        """
        if permits is None:
            return bool((yield from self._asked("clear"))[2])
        number = whole_number("permits", permits, -NUMBER_MAX)
        return bool((yield from self._asked("init" if if_absent else "set", number))[2])

    @operation
    def add(self, permits: int) -> Steps[int]:
        """Add to the number of permits, and store it; return what it is then."""
        return (yield from self._asked("add", whole_number("permits", permits, -NUMBER_MAX)))[0]

    @operation
    def reduce(self, permits: int) -> Steps[int]:
        """Take from the number of permits, and return what it is then. No permit that is out ends."""
        return (yield from self._asked("add", -whole_number("permits", permits, -NUMBER_MAX)))[0]

    def _numbers(self) -> Steps[tuple[int, int]]:
        total, out, *_ = yield from self._asked("look")
        return total, out

    def _give_permits(self, holds: list[Hold], what: list[Any]) -> Steps[None]:
        """Give permits back, some of which `holds` have; raise if one was not held any more."""
        hub = self.hub()
        if not (reply := (yield from self._asked(*what, holds=holds))):
            raise not_held(self.name)
        left = {force_str(slot): count for slot, count in zip(reply[::2], reply[1::2], strict=True)}
        for hold in holds:
            hold.shared = max(left.get(hold.owner, hold.shared), 0)
            if not hold.shared:
                hub.holds.remove(hold)
                if (released := left[hold.owner] == 0) and not hold.anyones:
                    hub.slots.free(hold.owner)
                hold.over(released=released)
        if min(left.values()) < 0:
            raise self._lost()

    def _asked(self, *what: Any, holds: Sequence[Hold] = ()) -> Steps[list[int]]:
        """Run permits.lua, with its arguments from the second; `holds` may be over then."""
        hub, keys = self.hub(), self._keys
        keys.append(f"{keys[0]}:done:{hub.new_request()}:{hub.channel}")
        return self._insist(Ask(_PERMITS, keys, [self._terms(hub, (0, 0)), *what]), holds)

    @property
    def _keys(self) -> list[str]:
        keys = super()._keys
        return [*keys, f"{keys[0]}:total"]


class Permits(Owned, Totals):
    """Source of both faces of `Semaphore`.

    Args:
        permits: their number, where the server has no total, and the most of one acquire. None: 0, and any.
        name, settings: as of `Lock`. A permit is renewed while its holder lives, so a killed process gives its
            permits back; other processes know an owner's permits only to release them.
    """

    _kind = "semaphore"

    def __init__(self, name: str, *, permits: int | None = None, **settings: Unpack[Settings]) -> None:
        self.permits, self._capacity = permits, 0 if permits is None else whole_number("permits", permits)
        super().__init__(name, **settings)

    @operation
    def acquire(
        self, permits: int = 1, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take `permits` at once; False when the time was over. Each acquire needs a release."""
        whole_number("permits", permits, most=self.permits or NUMBER_MAX)
        return (yield from self._take_permits(permits, wait_seconds, lease_seconds)) > 0

    @operation
    def drain(self, *, lease_seconds: float | None = DEFAULT) -> Steps[int]:
        """Take all free permits as one acquire; return how many, 0 while somebody waits for them."""
        return self._take_permits(0, 0, lease_seconds)

    def _take_permits(self, permits: int, wait_seconds: float | None, lease_seconds: float | None) -> Steps[int]:
        hub, own = self.hub(), self._holder()
        slot = Holder(hub.slots.name(), own.alive, _for(own))
        hold = yield from self._take_places(slot, (permits, 0), wait_seconds, lease_seconds)
        if hold is None:
            hub.slots.free(slot.name)
        else:
            hub.slots.add(own.name, hold)
        return 0 if hold is None else hold.shared

    @operation
    def release(self, permits: int | None = None) -> Steps[None]:
        """Give permits back, those of the newest acquire first.

        Args:
            permits: None: those of the last acquire. With `owner=` also what other processes acquired.

        Raise as `Lock` does. Where the caller has not so many, nothing changed.
        """
        what: list[Any] = ["give"]
        hub, own, keys = self.hub(), self._holder(), self._keys
        holds = hub.slots.of(keys[0], own.name)
        if permits is None and holds:
            hold = holds[-1]
            yield Finish(self._give_places(keys, hold.holder, (hold.shared, 0), hold.token))
            return hub.slots.free(hold.owner)
        left = 1 if permits is None else whole_number("permits", permits)
        if self._owner is not None or left > sum(hold.shared for hold in holds):  # `close` has forgotten some
            what = ["named", _for(own), permits or 0]
        else:
            for hold in reversed(holds):
                if count := min(left, hold.shared):
                    what += [hold.owner, hold.token, count]
                    left -= count
                    if count == hold.shared:
                        self.hub().holds.remove(hold)  # as in `_give_places`
            holds = [hold for hold in holds if hold.owner in what]
        yield Finish(self._give_permits(holds, what))

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
        return self.hub().slots.of(self._key, self._holder().name)


def _for(owner: Holder) -> bytes:
    return f" {owner.name}".encode()


class Semaphore(OnThreads, WithStatement, Permits):
    """Counting permits for threads and processes; see `Permits` for its arguments."""


class AsyncSemaphore(OnTasks, AsyncWithStatement, Permits):
    """`Semaphore` for asyncio."""


class ExpirablePermits(Totals):
    """Source of both faces of `PermitExpirableSemaphore`.

    Args:
        name: any text; another kind of resource than a `Semaphore` of that name.
        permits: as of `Semaphore`.
        client, prefix, release_seconds: as of `Lock`.
        on_lost, on_expired, on_released: as of `Lock`, for each permit taken here, wherever it is released.
    """

    _kind = "permits"

    def __init__(
        self,
        name: str,
        *,
        permits: int | None = None,
        client: Any = None,
        prefix: str | None = None,
        release_seconds: float = RELEASE_SECONDS,
        on_lost: contexts.Listener | None = None,
        on_expired: contexts.Listener | None = None,
        on_released: contexts.Listener | None = None,
    ) -> None:
        super().__init__(name, client=client, prefix=prefix)
        self._release_seconds = bounded("release_seconds", release_seconds, or_zero=True)
        self._notify = contexts.Listeners(name, lost=on_lost, expired=on_expired, released=on_released) or None
        self.permits, self._capacity = permits, 0 if permits is None else whole_number("permits", permits)

    @operation
    def acquire(self, *, lease_seconds: float, wait_seconds: float | None = None) -> Steps[str | None]:
        """Take one permit that ends by itself after `lease_seconds`, at most 1e9 (31 years).

        Returns:
            Its name, with which anyone may give it back or prolong it; None when the time was over.
        """
        many = type(self).acquire_many.steps(self, 1, lease_seconds=lease_seconds, wait_seconds=wait_seconds)
        return next(iter((yield from many)), None)

    @operation
    def acquire_many(
        self, permits: int, *, lease_seconds: float, wait_seconds: float | None = None
    ) -> Steps[list[str]]:
        """Take several permits, all or none, as `acquire` takes one; return their names."""
        whole_number("permits", permits, most=self.permits or NUMBER_MAX)
        bounded("lease_seconds", lease_seconds)  # None too: nobody renews it
        hub = self.hub()
        one = Holder(hub.new_request(), lambda: True, b"/")
        hold = yield from self._take_places(one, (permits, 0), wait_seconds, lease_seconds, watched=False)
        if hold is None:
            return []
        names = [one.name, *(f"{one.name}/{number}" for number in range(2, permits + 1))]
        for name in names if self._notify else ():
            hub.holds.add(replace(hold, owner=name, shared=1))
        return [f"{name}@{hold.token}" for name in names]

    @operation
    def release(self, permit: str, *more: str) -> Steps[None]:
        """Give a permit back, or several in one command.

        Raises:
            NotHeld: one has ended, or never was; the others are given back.
            LockUnavailable: Redis did not reply; the lease ends it.
        """
        what: list[Any] = [part for each in (permit, *more) for part in (*_parsed(each), 1)]
        holds = [hold for owner in what[::3] if (hold := self.hub().holds.get(self._key, owner))]
        for hold in holds:
            self.hub().holds.remove(hold)  # first: a question about it that is answered later is no loss
        yield Finish(self._give_permits(holds, ["give", *what]))

    @operation
    def prolong(self, permit: str, *, lease_seconds: float) -> Steps[None]:
        """Let a permit last for `lease_seconds` (at most 1e9) from now on, if it does not anyway.

        Raises:
            NotHeld: it has ended, or never was.
        """
        owner, token = _parsed(permit)
        ask = renewal([(self._key, owner, token, bounded("lease_seconds", lease_seconds))])
        end, _ = yield from self._insist(ask)
        if not end:
            raise self._lost()

    def _lost(self) -> NotHeld:
        return NotHeld(f"A permit of {self.name!r} has ended.")

    @operation
    def remaining_seconds(self, permit: str) -> Steps[float]:
        """Return the seconds until a permit expires; 0.0 for one that has ended or never was."""
        name, owners = _parsed(permit), (yield from self._state()).owners
        ends = (each.remaining_seconds for each in owners if (each.name, each.token) == name)
        return next(ends, 0.0)


class PermitExpirableSemaphore(OnThreads, ExpirablePermits):
    """Permits that expire and that anyone can give back. Arguments: `ExpirablePermits`."""


class AsyncPermitExpirableSemaphore(OnTasks, ExpirablePermits):
    """`PermitExpirableSemaphore` for asyncio."""


def _parsed(permit: str) -> tuple[str, int]:
    owner, _, token = permit.rpartition("@") if isinstance(permit, str) else ("", "", "")
    if not owner or not token.isdecimal():
        raise ValueError(f"permit must be the name that acquire returned, not {permit!r}")
    return owner, int(token)
