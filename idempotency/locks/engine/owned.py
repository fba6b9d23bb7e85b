"""Base of locks and semaphores: an owner has places under a lease."""

from typing import Any, Unpack

from idempotency.locks.engine.contexts import DEFAULT, Common, Entered
from idempotency.locks.engine.hub import Resource
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Places


class Settings(Common, total=False):
    """Keyword arguments of `Owned`."""

    client: Any
    prefix: str | None
    lease_seconds: float | None
    hold_seconds_max: float
    release_seconds: float


class Owned(Entered, Resource):
    """Resource of which an owner has places, within `with` or between `acquire` and `release`.

    Args:
        name: any text; the same name is the same resource everywhere.
        client, prefix: as of `Resource`.
        lease_seconds: None is renewed by the watchdog while the holder lives; a number, at most 1e9 (31 years),
            ends by itself.
        hold_seconds_max: the longest that the watchdog renews.
        release_seconds: how long a release bears a Redis that does not reply.
        settings: as of `Entered`.
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
        prefix: str | None = None,
        lease_seconds: float | None = None,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        release_seconds: float = RELEASE_SECONDS,
        **settings: Unpack[Common],
    ) -> None:
        Resource.__init__(self, name, client=client, prefix=prefix)
        Entered.__init__(self, name, **settings)
        self._lease_seconds = lease_seconds
        self._places = self._places_type(
            kind=self._kind,
            name=name,
            prefix=prefix,
            capacity=self._capacity,
            fair=self._fair,
            hold_seconds_max=hold_seconds_max,
            release_seconds=release_seconds,
            notify=self._listeners or None,
        )

    def _lease(self, lease_seconds: float | None) -> float | None:
        """Return the lease: the argument, or the constructor's value."""
        return self._lease_seconds if lease_seconds is DEFAULT else lease_seconds
