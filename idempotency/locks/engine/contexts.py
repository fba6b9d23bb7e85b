"""Entering: `enter`, `with`, `async with` and listeners of what is acquired and released."""

import logging
import time
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypedDict, Unpack

from idempotency.arguments import bounded, callback, leasing, text, waiting
from idempotency.locks.engine import holder
from idempotency.locks.engine.holds import Hold
from idempotency.locks.engine.hub import Resource
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Placed
from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.engine.waits import Waited
from idempotency.locks.errors import LockError, LockTimeout, NotHeld, not_held
from idempotency.locks.state import AskedByHolder
from idempotency.observability import metrics

log = logging.getLogger(__name__)

Listener = Callable[[str, int], None]


class Common(TypedDict, total=False):
    """Keyword arguments of `Entered`."""

    owner: str | None
    wait_seconds: float | None
    raise_on_lost: bool
    on_lost: Listener | None
    on_expired: Listener | None
    on_released: Listener | None


class Listeners:
    """Callbacks by how a hold of this process ends. They run where that is noticed."""

    def __init__(self, name: str, **calls: Listener | None) -> None:
        self._name = name
        self.calls = {end: call for end, each in calls.items() if (call := callback(f"on_{end}", each))}

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, end: str, hold: Any) -> None:
        try:
            if end in self.calls:
                self.calls[end](self._name, hold.token)
        except Exception:
            metrics.background_failures.labels("locks-listener").inc()
            log.exception("A listener of %r failed", self._name)


class Entered(Waited):
    """Base of what is acquired within a time and released.

    Args:
        owner: holder's name, for code that acquires in one thread and releases in another, such as around
            `sync_to_async`; unique, or two callers are taken for one. None: the running thread or task.
        wait_seconds: how long `with` and `acquire` wait: None for ever, 0 not at all.
        raise_on_lost: whether the end of `with` raises `LockLost`; False logs it.
        on_lost, on_expired, on_released: called with name and token when a hold of this process ends otherwise, by
            the `lease_seconds` that it asked for, or by its release; where that is noticed. They must not block.
    """

    acquire: Any
    release: Any
    _unheard: ClassVar[dict[str, str]] = {}  # ends that it has no listener of, and why

    def __init__(
        self,
        name: str,
        *,
        owner: str | None = None,
        wait_seconds: float | None = None,
        raise_on_lost: bool = True,
        on_lost: Listener | None = None,
        on_expired: Listener | None = None,
        on_released: Listener | None = None,
    ) -> None:
        self.name, self._waits = text("name", name), set()
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = waiting(wait_seconds)
        self._raise_on_lost = raise_on_lost
        self._listeners = Listeners(name, lost=on_lost, expired=on_expired, released=on_released)
        self._notify: Any = self._listeners or None
        for end in self._listeners.calls.keys() & self._unheard.keys():
            raise TypeError(f"{type(self).__name__} has no on_{end}: {self._unheard[end]}.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @operation
    def enter(self) -> Steps[None]:
        """Acquire for `with`, or raise `LockTimeout`. Here an earlier loss is `LockLost`."""
        if not (yield from self._entering()):
            raise LockTimeout(f"{self.name!r} was not free within {self._wait_seconds} s.")

    def _entering(self) -> Steps[bool]:
        return type(self).acquire.steps(self)  # type: ignore[no-any-return]

    def _holder(self) -> holder.Holder:
        return self._owner or holder.current()

    @operation
    def _exit(self, error: BaseException | None) -> Steps[None]:
        """Release; raise its failure only if the block itself has not failed."""
        try:
            yield from type(self).release.steps(self)
        except LockError as lost:
            if error is None and (self._raise_on_lost or not isinstance(lost, NotHeld)):
                raise
            log.warning("At the end of `with`: %s", lost)


class Settings(Common, total=False):
    """Keyword arguments of `Owned`."""

    client: Any
    prefix: str | None
    lease_seconds: float | None
    hold_seconds_max: float
    release_seconds: float


class Owned(AskedByHolder, Entered, Placed):
    """Resource of which an owner has places, within `with` or between `acquire` and `release`.

    Args:
        name, client, prefix: as of `Resource`.
        lease_seconds: None is renewed by the watchdog while the holder lives; a number, at most 1e9 (31 years),
            ends by itself.
        hold_seconds_max: the longest that the watchdog renews.
        release_seconds: how long a release bears a Redis that does not reply.
        settings: as of `Entered`.
    """

    __repr__ = Resource.__repr__
    _holds: Callable[[], list[Hold]]

    def __init__(
        self,
        name: str,
        *,
        client: Any = None,
        prefix: str | None = None,
        lease_seconds: float | None = None,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        release_seconds: float = RELEASE_SECONDS,
        **settings: Unpack[Common],
    ) -> None:
        Placed.__init__(self, name, client=client, prefix=prefix)
        Entered.__init__(self, name, **settings)
        self._lease_seconds = leasing(lease_seconds)
        self._hold_seconds_max = bounded("hold_seconds_max", hold_seconds_max)
        self._release_seconds = bounded("release_seconds", release_seconds, or_zero=True)

    @operation
    def extend(self, seconds: float, *, add: bool = False) -> Steps[None]:
        """Let the caller's lease last at least `seconds` from now on; with `add`, from its end on.

        The watchdog, if it renews the lease, does so for as long from now on. Raise as `release`.
        """
        if not (holds := self._holds()):
            raise not_held(self.name)
        now = time.monotonic()
        leases = [bounded("seconds", seconds) + (max(0.0, hold.ends_at - now) if add else 0.0) for hold in holds]
        for hold, lease in zip(holds, leases, strict=True):
            hold.lease_seconds = max(hold.lease_seconds, lease)
        yield from self.hub().prolong(holds, leases)
        if any(hold.gone for hold in holds):
            raise self._lost()


class WithStatement:
    def __enter__(self) -> Self:
        self.enter()  # type: ignore[attr-defined]
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._exit(error)  # type: ignore[attr-defined]


class AsyncWithStatement:
    async def __aenter__(self) -> Self:
        await self.enter()  # type: ignore[attr-defined]
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._exit(error)  # type: ignore[attr-defined]
