"""Deadlines: the end of a wait, and the time that each command of it may take."""

import time
from typing import Any

from idempotency.locks.engine.steps import Ask, Pause, Steps
from idempotency.locks.errors import LockUnavailable
from idempotency.redis.mailbox import BACK_OFF_SECONDS, READY_SECONDS


def deadline_of(wait_seconds: float | None) -> float:
    """Return the end of a wait, on our clock: infinite for None, and 0.0 for one that asks only once."""
    if wait_seconds is None:
        return float("inf")
    return time.monotonic() + wait_seconds if wait_seconds > 0 else 0.0


def bound_of(deadline: float) -> float | None:
    """Return the time for a command of a wait. None where its deadline is infinite, or 0.0 to ask once."""
    return None if deadline in {0.0, float("inf")} else max(deadline - time.monotonic(), READY_SECONDS)


def insist(ask: Ask, *, seconds: float) -> Steps[Any]:
    """Send the same command until it is answered."""
    until = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return (yield ask)
        except LockUnavailable:
            if time.monotonic() > until:
                raise
            yield Pause(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)])
            failures += 1
