"""Totals of both semaphores: the number of their permits, asked for and changed on the server."""

from collections.abc import Sequence
from typing import Any

from idempotency.locks.engine.holds import NUMBER_MAX, Hold, whole_number
from idempotency.locks.engine.hub import script
from idempotency.locks.engine.places import Placed
from idempotency.locks.engine.steps import Ask, Steps, operation

_PERMITS = script("places", "permits")


class Totals(Placed):
    """Verbs of both semaphores. Without a total on the server the caller's `permits` is the number."""

    @operation
    def total(self) -> Steps[int]:
        """Return the number of permits."""
        return (yield from self._asked("look"))[0]

    @operation
    def acquired(self) -> Steps[int]:
        """Return how many permits are out."""
        return (yield from self._asked("look"))[1]

    @operation
    def available(self) -> Steps[int]:
        """Return how many permits are free; below 0 where more are out than there are now."""
        total, out, *_ = yield from self._asked("look")
        return total - out

    @operation
    def set_total(self, permits: int | None, *, if_absent: bool = False) -> Steps[bool]:
        """Store the number of permits on the server, for good and for every caller; return whether it was stored.

        Args:
            permits: may be less than are out. None: each caller's own number counts again.
            if_absent: leave one that is stored as it is.
        """
        what = (
            ["clear"]
            if permits is None
            else ["init" if if_absent else "set", whole_number("permits", permits, -NUMBER_MAX)]
        )
        return bool((yield from self._asked(*what))[2])

    @operation
    def add(self, permits: int) -> Steps[int]:
        """Add to the number of permits, and store it; return what it is then."""
        return (yield from self._asked("add", whole_number("permits", permits, -NUMBER_MAX)))[0]

    @operation
    def reduce(self, permits: int) -> Steps[int]:
        """Take from the number of permits, and return what it is then. No permit that is out ends."""
        return (yield from self._asked("add", -whole_number("permits", permits, -NUMBER_MAX)))[0]

    def _asked(self, *what: Any, holds: Sequence[Hold] = ()) -> Steps[list[int]]:
        """Run permits.lua, with its arguments from the second; `holds` may be over then."""
        hub = self.hub()
        keys = self._keys
        keys.append(f"{keys[0]}:done:{hub.new_request()}")
        return self._insist(Ask(_PERMITS, keys, [self._terms(hub, (0, 0)), *what]), holds)

    @property
    def _keys(self) -> list[str]:
        keys = super()._keys
        return [*keys, f"{keys[0]}:total"]
