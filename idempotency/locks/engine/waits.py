"""Waits: a question is asked until its answer is good, its time is over or it is cancelled.

One loop for everything that waits for a message of Redis; one `cancel` for everything that waits.
"""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from idempotency.arguments import waiting
from idempotency.locks.engine.hub import Hub
from idempotency.locks.engine.steps import DEFAULT, Listen, Pause, Steps, Wait, bound_of, operation
from idempotency.locks.errors import LockUnavailable
from idempotency.redis.mailbox import READY_SECONDS, back_off_seconds

UNAVAILABLE_SECONDS = 10.0  # for which an acquire bears a server that does not reply


@dataclass(slots=True, eq=False)
class Rest:
    """Wait without a server, of the caller alone."""

    deadline: float  # 0.0 once it is cancelled
    bell: Any = None  # rung then; None for a caller that looks often

    def cancel(self) -> None:
        self.deadline = 0.0
        if self.bell is not None:
            self.bell.ring()


@dataclass(slots=True, eq=False, kw_only=True)
class Question:
    """Question to a server that a caller waits with. A message to `request` makes it ask again."""

    hub: Hub
    request: str
    deadline: float = 0.0  # 0.0 to ask once, and once it is cancelled
    bears_seconds: float = UNAVAILABLE_SECONDS  # a server that does not reply
    ask: ClassVar[Any]  # makes the command: `stay` to be notified where the answer is no, `again` if it was sent
    good: ClassVar[Any]  # what a good answer gives the caller; None for one to wait after
    look_again_seconds: ClassVar[Any]  # after such an answer, without a message

    def granted(self, answer: Any, sent_at: float) -> Any:
        """Return what a message after such an answer gives the caller; None to ask again."""
        return None

    def cancel(self) -> None:
        """Let its time be over, and have the caller look."""
        self.deadline = 0.0
        self.hub.mail.deliver(self.request)

    def until(self, waits: set[Any]) -> Steps[Any]:
        """Ask, wait for a message or a while, and ask again; None where the time is over."""
        waits.add(self)
        try:
            if self.deadline > 0.0:
                self.hub.mail.expect(self.request)
                if not self.hub.mailbox.confirmed:  # a step costs a dozen calls
                    yield Listen(min(READY_SECONDS, self.deadline - time.monotonic()))
            return (yield from self._until())
        finally:
            waits.discard(self)
            self.hub.mail.forget(self.request)

    def _until(self) -> Steps[Any]:
        again, failures, failing_since = False, 0, None
        while True:
            sent_at, deadline = time.monotonic(), self.deadline
            stay = sent_at < deadline
            if stay:  # an earlier message leads to this question, and must not ring the next bell
                self.hub.mail.expect(self.request)
            try:
                answer = yield self.ask(stay=stay, again=again, seconds=bound_of(deadline))
            except LockUnavailable:
                failing_since = failing_since or sent_at
                now = time.monotonic()
                if now >= deadline or now - failing_since > self.bears_seconds:
                    raise
                yield Pause(min(back_off_seconds(failures), deadline - now))
                failures, again = failures + 1, True
                continue
            failures, failing_since, again = 0, None, True
            if (found := self.good(answer, sent_at)) is not None or not stay:
                return found
            bell = self.hub.bell()
            self.hub.mail.hang(self.request, bell)
            yield Wait(bell, min(self.look_again_seconds(answer), self.deadline - time.monotonic()))
            if (found := self.granted(answer, sent_at)) is not None:
                return found


class Waited:
    """Base of every kind that is waited for."""

    _waits: set[Any]  # through this object. `cancel` of one ends it, or returns the step for it
    _wait_seconds: float | None = None

    def _limit(self, wait_seconds: float | None) -> float | None:
        """Return how long to wait: the argument, or the constructor's value."""
        return self._wait_seconds if wait_seconds is DEFAULT else waiting(wait_seconds)

    @operation
    def cancel(self) -> Steps[None]:
        """End every wait through this object, in whatever thread: as if its time were over."""
        for wait in list(self._waits):
            if (step := wait.cancel()) is not None:
                yield step
