"""Base of locks and semaphores: an owner has places under a lease."""

from collections.abc import Callable
from typing import Any, TypedDict

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import DEFAULT, Entered
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.hub import Resource
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Places

Listener = Callable[[str, int], None]


class Settings(TypedDict, total=False):
    """Keyword arguments of `Owned`."""

    client: Any
    owner: str | None
    wait_seconds: float | None
    lease_seconds: float | None
    hold_seconds_max: float
    release_seconds: float
    raise_on_lost: bool
    on_lost: Listener | None
    on_expired: Listener | None
    on_released: Listener | None


class Owned(Entered, Resource):
    """Resource of which an owner has places, within `with` or between `acquire` and `release`.

    Args:
        name: any text; the same name is the same resource everywhere.
        client: as of `Resource`.
        owner: holder's name, for code that acquires in one thread and releases in another, such as around
            `sync_to_async`; unique, or two callers are taken for one. None: the running thread or task.
        wait_seconds: how long `with` and `acquire` wait: None for ever, 0 not at all.
        lease_seconds: None is renewed by the watchdog while the holder lives; a number, at most 1e9 (31 years),
            ends by itself.
        hold_seconds_max: the longest that the watchdog renews.
        release_seconds: how long a release bears a Redis that does not reply.
        raise_on_lost: whether the end of `with` raises `LockLost`; False logs it.
        on_lost, on_expired, on_released: called with name and token when a hold of this process ends otherwise, by
            the `lease_seconds` that it asked for, or by its release; on the watchdog, or where that was noticed.
    """

    __repr__ = Resource.__repr__
    _capacity: int
    _fair = True
    _places_type = Places

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
        raise_on_lost: bool = True,
        on_lost: Listener | None = None,
        on_expired: Listener | None = None,
        on_released: Listener | None = None,
    ) -> None:
        self.name = name
        self.client = client
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds
        self._lease_seconds = lease_seconds
        self._raise_on_lost = raise_on_lost
        self._places = self._places_type(
            kind=self._kind,
            name=name,
            capacity=self._capacity,
            fair=self._fair,
            hold_seconds_max=hold_seconds_max,
            release_seconds=release_seconds,
        )
        calls = {"lost": on_lost, "expired": on_expired, "released": on_released}
        self._places.listeners = {end: call for end, call in calls.items() if call is not None}

    def _holder(self) -> Holder:
        return self._owner or holder.current()

    def _lease(self, lease_seconds: float | None) -> float | None:
        """Return the lease: the argument, or the constructor's value."""
        return self._lease_seconds if lease_seconds is DEFAULT else lease_seconds
