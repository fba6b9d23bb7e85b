"""Bases of locks and semaphores: places under a lease, and an owner that has them."""

from typing import Any, Unpack

from idempotency.locks.engine.contexts import DEFAULT, Common, Entered
from idempotency.locks.engine.holds import Hold, bounded
from idempotency.locks.engine.hub import Resource
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Places, Share
from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.engine.waits import Waited
from idempotency.locks.errors import not_held
from idempotency.locks.state import Asked, AskedByHolder, State


class Settings(Common, total=False):
    """Keyword arguments of `Owned`."""

    client: Any
    prefix: str | None
    lease_seconds: float | None
    hold_seconds_max: float
    release_seconds: float


class Placed(Waited, Asked, Resource):
    """Resource whose places a server gives and takes."""

    _places: Any
    _share: Share = (1, 0)

    @operation
    def force_release(self, *, token: int | None = None) -> Steps[bool]:
        """Take it from its holder, and hand it to the next waiter. Return whether anyone held it.

        The holder's `lost` is true after its next renewal, and its `release` raises `LockLost`.

        Args:
            token: of the one hold to end, or acquire of permits; None ends every reader's, the writer's, or every
                permit.
        """
        return (yield from self._places.force(self.hub(), self._share, token or 0)) > 0

    def _state(self) -> Steps[State]:
        return self._places.look(self._share)  # type: ignore[no-any-return]


class Owned(AskedByHolder, Entered, Placed):
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
            waits=self._waits,
        )

    @operation
    def extend(self, seconds: float) -> Steps[None]:
        """Let the caller's lease last for `seconds` from now on, if it does not anyway. Raise as `release`.

        The watchdog, if it renews the lease, does so for as long from now on.
        """
        if not (holds := self._holds()):
            raise not_held(self.name)
        for hold in holds:
            hold.lease_seconds = max(hold.lease_seconds, bounded("seconds", seconds))
        yield from self.hub().prolong(holds, seconds)
        if any(hold.gone for hold in holds):
            raise self._places.lost()

    def _holds(self) -> list[Hold]:
        raise NotImplementedError

    def _lease(self, lease_seconds: float | None) -> float | None:
        """Return the lease: the argument, or the constructor's value."""
        return self._lease_seconds if lease_seconds is DEFAULT else lease_seconds
