"""`Semaphore` and `PermitExpirableSemaphore`: at most so many at once, in the order of arrival.

The number of permits is an argument of each use, not a value on the server: a deployment that changes it needs no
migration, and while two versions run, each goes by its own number.
"""

import itertools
from typing import Any

from idempotency.locks import holder
from idempotency.locks.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.errors import LockTimeout, NotHeld
from idempotency.locks.holder import Holder
from idempotency.locks.holds import MICROSECONDS, Hold
from idempotency.locks.hub import Hub
from idempotency.locks.mutex import DEFAULT
from idempotency.locks.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Places, insist
from idempotency.locks.script import Script
from idempotency.locks.steps import Ask, Steps, operation
from idempotency.locks.tasks import OnTasks
from idempotency.locks.threads import OnThreads

_RENEW = Script("renew")


class Permits:
    """The source of both faces of `Semaphore`.

    Args:
        name: any text; the same name is the same semaphore everywhere.
        permits: how many there are.
        client, owner, wait_seconds, lease_seconds, hold_seconds_max, release_seconds: as of `Lock`. A permit is
            renewed while its holder lives, so a killed process gives its permits back.
    """

    def __init__(
        self,
        name: str,
        *,
        permits: int,
        client: Any = None,
        owner: str | None = None,
        wait_seconds: float | None = None,
        lease_seconds: float | None = None,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        release_seconds: float = RELEASE_SECONDS,
    ) -> None:
        if permits < 1:
            raise ValueError(f"permits must be at least 1, not {permits}")
        self.name = name
        self.client = client
        self.permits = permits
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds
        self._lease_seconds = lease_seconds
        self._places = Places(
            kind="semaphore",
            name=name,
            capacity=permits,
            hold_seconds_max=hold_seconds_max,
            release_seconds=release_seconds,
        )

    def hub(self) -> Hub:
        """Where permits are held."""
        raise NotImplementedError

    @operation
    def acquire(
        self, permits: int = 1, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take `permits` at once; every acquire takes more, and wants a release.

        Returns:
            Whether they are held now; False when the time was over.

        Raises:
            LockUnavailable: Redis did not answer.
        """
        if not 1 <= permits <= self.permits:
            raise ValueError(f"permits must be 1 to {self.permits}, not {permits}")
        hold = yield from self._places.take(
            self.hub(),
            self._slot(len(self._holds())),
            shared=permits,
            exclusive=0,
            wait_seconds=self._wait_seconds if wait_seconds is DEFAULT else wait_seconds,
            lease_seconds=self._lease_seconds if lease_seconds is DEFAULT else lease_seconds,
        )
        return hold is not None

    @operation
    def release(self) -> Steps[None]:
        """Give back what the caller acquired last.

        Raises:
            NotHeld: the caller has no permit.
            LockLost: it had, but the lease ended before.
            LockUnavailable: Redis did not answer; the lease ends it.
        """
        holds = self._holds()
        if not holds:
            raise NotHeld(f"The caller has no permit of {self.name!r}.")
        hold = holds[-1]
        yield from self._places.give(self.hub(), hold.holder, shared=hold.shared, exclusive=0, token=hold.token)

    @operation
    def enter(self) -> Steps[None]:
        """Acquire one, or raise `LockTimeout`: what `with` does."""
        if not (yield from Permits.acquire.steps(self)):
            raise LockTimeout(f"No permit of {self.name!r} was free within {self._wait_seconds} s.")

    @property
    def held(self) -> int:
        """How many permits the caller has, as far as this process knows without asking."""
        return sum(hold.shared for hold in self._holds() if not hold.lost)

    @property
    def lost(self) -> bool:
        """Whether a permit of the caller has ended without a release."""
        return any(hold.lost for hold in self._holds())

    def _slot(self, number: int) -> Holder:
        """Each acquire of a holder is a holder of its own on the server; the names are used again."""
        own = self._owner or holder.current()
        return Holder(f"{own.name}/{number}", own.alive)

    def _holds(self) -> list[Hold]:
        """The caller's, in the order of their acquires."""
        holds = self.hub().holds
        found = (holds.get(self._places.keys[0], self._slot(number).name) for number in itertools.count())
        return list(itertools.takewhile(lambda hold: hold is not None, found))  # type: ignore[arg-type]


class Semaphore(OnThreads, WithStatement, Permits):
    """Counting permits for threads and processes; see `Permits` for its arguments."""


class AsyncSemaphore(OnTasks, AsyncWithStatement, Permits):
    """`Semaphore` for asyncio."""


class ExpirablePermits:
    """The source of both faces of `PermitExpirableSemaphore`.

    Args:
        name: any text; another kind of resource than a `Semaphore` of that name.
        permits: how many there are.
        client, release_seconds: as of `Lock`.
    """

    def __init__(
        self, name: str, *, permits: int, client: Any = None, release_seconds: float = RELEASE_SECONDS
    ) -> None:
        if permits < 1:
            raise ValueError(f"permits must be at least 1, not {permits}")
        self.name = name
        self.client = client
        self._places = Places(kind="permits", name=name, capacity=permits, release_seconds=release_seconds)

    def hub(self) -> Hub:
        """Where it is asked for."""
        raise NotImplementedError

    @operation
    def acquire(self, *, lease_seconds: float, wait_seconds: float | None = None) -> Steps[str | None]:
        """Take one permit that ends by itself after `lease_seconds`.

        Returns:
            Its name, with which anyone may give it back or prolong it; None when the time was over.

        Raises:
            LockUnavailable: Redis did not answer.
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
        """Give it back.

        Raises:
            NotHeld: it has ended, or never was.
            LockUnavailable: Redis did not answer; the lease ends it.
        """
        owner, token = _taken_apart(permit)
        yield from self._places.give(self.hub(), Holder(owner, lambda: True), shared=1, exclusive=0, token=token)

    @operation
    def prolong(self, permit: str, *, lease_seconds: float) -> Steps[None]:
        """Let it last `lease_seconds` from now on, if it does not anyway.

        Raises:
            NotHeld: it has ended, or never was.
            LockUnavailable: Redis did not answer.
        """
        owner, token = _taken_apart(permit)
        ask = Ask(_RENEW, self._places.keys[:1], [owner, token, round(lease_seconds * MICROSECONDS)])
        end, _ = yield from insist(ask, seconds=RELEASE_SECONDS)
        if not end:
            raise NotHeld(f"The permit of {self.name!r} has ended.")


class PermitExpirableSemaphore(OnThreads, ExpirablePermits):
    """Permits that end by themselves and can be given back by anyone; see `ExpirablePermits` for its arguments."""


class AsyncPermitExpirableSemaphore(OnTasks, ExpirablePermits):
    """`PermitExpirableSemaphore` for asyncio."""


def _taken_apart(permit: str) -> tuple[str, int]:
    owner, _, token = permit.rpartition("@")
    if not owner or not token.isdigit():
        raise NotHeld(f"{permit!r} is no permit.")
    return owner, int(token)
