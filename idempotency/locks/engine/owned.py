"""Base of locks and semaphores: an owner has places under a lease."""

from collections.abc import Callable
from typing import Any, Unpack

from idempotency.locks.engine.contexts import DEFAULT, Common, Entered
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.holds import Hold, bounded
from idempotency.locks.engine.hub import Resource
from idempotency.locks.engine.places import HOLD_SECONDS_MAX, RELEASE_SECONDS, Placed, Share
from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.errors import not_held
from idempotency.locks.state import AskedByHolder


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
        name: any text; the same name is the same resource everywhere.
        client, prefix: as of `Resource`.
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
        self._lease_seconds, self._hold_seconds_max = lease_seconds, hold_seconds_max
        self._release_seconds = release_seconds
        self._notify = self._listeners or None

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
            raise self._lost()

    def _take(
        self,
        holder: Holder,
        share: Share,
        wait_seconds: float | None = DEFAULT,
        lease_seconds: float | None = DEFAULT,
        *,
        within: bool = False,
    ) -> Steps[Hold | None]:
        """Take places, by the constructor's times where none are given."""
        lease = self._lease_seconds if lease_seconds is DEFAULT else lease_seconds
        wait = self._limit(wait_seconds)
        return self._take_places(holder, share, wait_seconds=wait, lease_seconds=lease, within=within)
