"""`Lock` and `FairLock`: one holder at a time, reentrant, with a fencing token."""

from typing import Any

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.holds import Hold
from idempotency.locks.engine.hub import Hub
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Places
from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import LockTimeout

DEFAULT: Any = object()  # as the constructor said


class Mutex:
    """The source of both faces of both locks.

    Args:
        name: any text; the same name is the same lock everywhere.
        client: a redis-py client (of `redis.asyncio` for the face of asyncio); None takes the settings' one.
        owner: who holds, for code that acquires in one thread and releases in another, such as around
            `sync_to_async`; unique, or two callers are taken for one. None: the running thread or task.
        wait_seconds: how long `with` and `acquire` wait: None for ever, 0 not at all.
        lease_seconds: None is renewed by the watchdog while the holder lives; a number, at most 1e9 (31 years),
            ends by itself.
        hold_seconds_max: the longest that the watchdog renews.
        release_seconds: how long a release bears a Redis that does not answer.
    """

    _kind = "lock"
    _capacity = 1
    _fair = False
    _shared, _exclusive = 0, 1

    def __init__(
        self,
        name: str,
        *,
        client: Any = None,
        owner: str | None = None,
        wait_seconds: float | None = None,
        lease_seconds: float | None = None,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        release_seconds: float = RELEASE_SECONDS,
    ) -> None:
        self.name = name
        self.client = client
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds
        self._lease_seconds = lease_seconds
        self._places = Places(
            kind=self._kind,
            name=name,
            capacity=self._capacity,
            fair=self._fair,
            hold_seconds_max=hold_seconds_max,
            release_seconds=release_seconds,
        )

    def hub(self) -> Hub:
        """Where it is held."""
        raise NotImplementedError

    @operation
    def acquire(
        self, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take it, once more if the caller holds it already.

        Args:
            wait_seconds, lease_seconds: instead of the constructor's ones.

        Returns:
            Whether it is held now; False when the time was over.

        Raises:
            LockLost: the caller held it already and lost it since, not by a lease of its own: release it first.
            LockUnavailable: Redis did not answer.
        """
        return self._take(wait_seconds=wait_seconds, lease_seconds=lease_seconds)

    def _take(
        self, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT, within: bool = False
    ) -> Steps[bool]:
        hold = yield from self._places.take(
            self.hub(),
            self._holder(),
            shared=self._shared,
            exclusive=self._exclusive,
            wait_seconds=self._wait_seconds if wait_seconds is DEFAULT else wait_seconds,
            lease_seconds=self._lease_seconds if lease_seconds is DEFAULT else lease_seconds,
            within=within,
        )
        return hold is not None

    @operation
    def release(self) -> Steps[None]:
        """Give it back, or one acquire of several.

        Raises:
            NotHeld: the caller does not hold it; nothing changed.
            LockLost: the caller held it, but its lease ended before.
            LockUnavailable: Redis did not answer; the lease ends it.
        """
        hub, own = self.hub(), self._holder()
        hold = hub.holds.get(self._places.keys[0], own.name)
        # no token where another loop or process acquired it for this owner
        token = 0 if hold is None else hold.token
        yield from self._places.give(hub, own, shared=self._shared, exclusive=self._exclusive, token=token)

    @operation
    def enter(self) -> Steps[None]:
        """Acquire, or raise `LockTimeout`: what `with` does. Here any loss before a release is `LockLost`."""
        if not (yield from self._take(within=True)):
            raise LockTimeout(f"{self.name!r} was not free within {self._wait_seconds} s.")

    @property
    def token(self) -> int | None:
        """The fencing token of the caller's hold: higher than every earlier holder's. None if not held."""
        hold = self._hold()
        return None if hold is None else hold.token

    @property
    def held(self) -> bool:
        """Whether the caller holds it, as far as this process knows without asking."""
        hold = self._hold()
        return hold is not None and not hold.lost

    @property
    def lost(self) -> bool:
        """Whether the caller's hold has ended without a release: stop what you do."""
        hold = self._hold()
        return hold is not None and hold.lost

    def _holder(self) -> Holder:
        return self._owner or holder.current()

    def _hold(self) -> Hold | None:
        hold = self.hub().holds.get(self._places.keys[0], self._holder().name)
        mine = hold is not None and hold.shared >= self._shared and hold.exclusive >= self._exclusive
        return hold if mine else None


class Lock(OnThreads, WithStatement, Mutex):
    """A lock for threads and processes; see `Mutex` for its arguments.

    A release hands it to the longest waiter. A newcomer that finds it free in between takes it.
    """


class AsyncLock(OnTasks, AsyncWithStatement, Mutex):
    """`Lock` for asyncio."""


class FairLock(OnThreads, WithStatement, Mutex):
    """A lock in the order of arrival, over all processes; nobody passes the queue, not even who tries once."""

    _fair = True


class AsyncFairLock(OnTasks, AsyncWithStatement, Mutex):
    """`FairLock` for asyncio."""

    _fair = True
