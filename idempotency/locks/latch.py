"""`CountDownLatch`: wait until n things have happened, over processes."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.utils.encoding import force_str

from idempotency.arguments import bounded, whole_number
from idempotency.locks.engine.hub import Resource, script
from idempotency.locks.engine.places import RELEASE_SECONDS
from idempotency.locks.engine.steps import Ask, Finish, Steps, deadline_of, insist, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.engine.waits import Question, Waited
from idempotency.locks.errors import LockUnavailable
from idempotency.locks.state import Asked, State
from idempotency.redis.mailbox import READY_SECONDS

_LATCH = script("latch")
LIFE_SECONDS = 86_400.0
LOOK_SECONDS = 2.0  # after which a waiter looks by itself, in case a message was lost


@dataclass(slots=True, eq=False)
class _Look(Question):
    """Look whether nothing is left, by a waiter that is notified at the end of a latch."""

    keys: list[str]
    waiter: str  # its name on the server

    def ask(self, *, stay: bool, again: bool, seconds: float | None = None) -> Ask:
        return Ask(_LATCH, self.keys, ["look", self.waiter if stay else ""], seconds=seconds)

    def good(self, answer: int, sent_at: float) -> bool | None:
        return None if answer else True

    def look_again_seconds(self, answer: int) -> float:
        return LOOK_SECONDS


class Latch(Waited, Asked, Resource):
    """Source of both faces; see `Resource` for its arguments. Nobody holds a latch."""

    _kind = "latch"

    @property
    def _keys(self) -> list[str]:
        return [f"{self._key}{part}" for part in ("", ":waiters", ":told")]

    @operation
    def open(self, count: int, *, life_seconds: float = LIFE_SECONDS) -> Steps[bool]:
        """Set the count, if it is not open already; return whether this call opened it.

        Args:
            count: at least 1.
            life_seconds: after which it is closed, whatever is left; at most 1e9, which is 31 years.
        """
        life_ms = max(1, round(bounded("life_seconds", life_seconds) * 1000))
        opening = self._insist("open", self.hub().new_request(), whole_number("count", count), life_ms)
        return bool((yield from opening))

    @operation
    def count_down(self) -> Steps[int]:
        """Count down by one, and wake the waiters at 0. Return the rest, 0 for a closed one."""
        return int((yield from self._insist("down", self.hub().new_request())))

    @operation
    def count(self) -> Steps[int]:
        """Return the rest; 0 for one that is not open."""
        return int((yield from self._insist("look", "")))

    @operation
    def delete(self) -> Steps[bool]:
        """Close it, and wake the waiters, for whom nothing is left; return whether it was open."""
        return bool((yield from self._insist("delete", self.hub().new_request())))

    @operation
    def wait(self, *, wait_seconds: float | None = None) -> Steps[bool]:
        """Wait until the count is 0; None: for ever, 0: do not wait. False when the time was over."""
        hub = self.hub()
        request, deadline = hub.new_request(), deadline_of(self._limit(wait_seconds))
        look = _Look(self._keys, f"{hub.channel} {request}", hub=hub, request=request, deadline=deadline)
        look.bears_seconds = float("inf")
        try:
            return bool((yield from look.until(self._waits)))
        finally:
            yield Finish(self._left(look.waiter))

    def _state(self) -> Steps[State]:
        # by ``host/process id/random:number of the wait``; one whose process was killed counts until the end
        waiters = yield from self._insist("waiters")
        return State((), tuple(sorted(force_str(waiter).rpartition(" ")[2] for waiter in waiters)))

    def _left(self, waiter: str) -> Steps[None]:
        with suppress(LockUnavailable):  # it goes with the latch
            yield Ask(_LATCH, self._keys, ["leave", waiter], seconds=READY_SECONDS)

    def _insist(self, *arguments: Any) -> Steps[Any]:
        return (yield from insist(Ask(_LATCH, self._keys, list(arguments)), seconds=RELEASE_SECONDS))


class CountDownLatch(OnThreads, Latch):
    """Latch for threads and processes; see `Resource` for its arguments."""


class AsyncCountDownLatch(OnTasks, Latch):
    """`CountDownLatch` for asyncio."""
