"""Retry policy: return an outcome, send again, or give up. Pure: no clock, no I/O."""

import json
import math
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import httpx

from idempotency.client.errors import GaveUp

# 501 and 505 are not: a retry will not help
_TRANSIENT = frozenset({425, 429, 500, 502, 503, 504})
# mistakes of the program, and a transport like ours inside ours that has given up
_NOT_TRANSIENT = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, GaveUp)
# 2**62 times any wait is beyond `wait_max_seconds`, and still a float
_DOUBLINGS_MAX = 62


@dataclass(frozen=True, slots=True)
class Final:
    """Decision to return the answer, or raise the error, to the caller."""


@dataclass(frozen=True, slots=True)
class Again:
    """Decision to send again after `wait_seconds`."""

    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision to make no further attempt, for `reason`; the outcome is unknown."""

    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of retries.

    The wait before attempt n+1 is drawn from 0 to `wait_first_seconds` * 2**(n-1), that bound capped at
    `wait_max_seconds` ("full jitter"), and never shorter than the answer's Retry-After.

    Source: exponential back-off and full jitter, M. Brooker, AWS Architecture Blog, 4 March 2015.

    Args:
        attempts_max: attempts in all, the first included.
        wait_first_seconds: upper bound of the first wait.
        wait_max_seconds: upper bound of every drawn wait; Retry-After may ask for more.
        deadline_seconds: no attempt starts later than this after the first one.

    Raises:
        ValueError: a limit that allows nothing or is not finite.
    """

    attempts_max: int = 6
    wait_first_seconds: float = 0.25
    wait_max_seconds: float = 20.0
    deadline_seconds: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ValueError("attempts_max must be 1 or more")
        for name in ("wait_first_seconds", "wait_max_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, and finite")
        if not 0 < self.deadline_seconds < math.inf:
            raise ValueError("deadline_seconds must be more than 0, and finite")

    def after(
        self,
        outcome: httpx.Response | Exception,
        *,
        attempt: int,
        elapsed_seconds: float,
        draw: float,
        now: float,
    ) -> Final | Again | Stop:
        """Decide after an attempt.

        Args:
            outcome: the answer, its body at hand, or the error.
            attempt: number of this attempt, from 1.
            elapsed_seconds: time since the first attempt began.
            draw: random, 0 up to 1.
            now: seconds since the epoch, for a Retry-After that is a date.
        """
        if not _transient(outcome):
            if isinstance(outcome, Exception) and attempt > 1:
                # the error alone would hide that an earlier attempt may have had its effect
                return Stop("the last one failed in a way that a retry does not mend")
            return Final()
        if attempt >= self.attempts_max:
            return Stop("no more are allowed")
        asked = retry_after_seconds(outcome.headers, now=now) if isinstance(outcome, httpx.Response) else 0.0
        wait = max(self._drawn_wait(attempt, draw), asked)
        if elapsed_seconds + wait >= self.deadline_seconds:
            return Stop(f"the next would be after the deadline of {self.deadline_seconds:g} s")
        return Again(wait)

    def remaining_seconds(self, elapsed_seconds: float) -> float:
        """Return the time left for an attempt; above 0, at which sockets do not block."""
        return max(self.deadline_seconds - elapsed_seconds, 0.001)

    def _drawn_wait(self, attempt: int, draw: float) -> float:
        bound = self.wait_first_seconds * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)
        return draw * min(bound, self.wait_max_seconds)


def retry_after_seconds(headers: httpx.Headers, *, now: float) -> float:
    """Read how long Retry-After asks to wait; 0 if it is missing, in the past or unreadable.

    A date is measured from the answer's own Date where it has one, so that our clock need not be right.

    Args:
        headers: of the answer.
        now: seconds since the epoch.

    Source: RFC 9110 (June 2022), section 10.2.3; the date formats, section 5.6.7.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until = _epoch_of(value)
    if until is None:
        return 0.0
    since = _epoch_of(headers.get("Date", ""))
    return max(0.0, until - (now if since is None else since))


def _epoch_of(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        # the asctime form names no zone; every HTTP date is UTC
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _transient(outcome: httpx.Response | Exception) -> bool:
    if isinstance(outcome, Exception):
        return isinstance(outcome, httpx.TransportError) and not isinstance(outcome, _NOT_TRANSIENT)
    return outcome.status_code in _TRANSIENT or (outcome.status_code == 409 and _in_progress(outcome))


def _in_progress(answer: httpx.Response) -> bool:
    """Return whether a 409 says that the first request with this key still runs."""
    if answer.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/problem+json":
        return False
    try:
        document = json.loads(answer.read())
    except (ValueError, RecursionError, httpx.DecodingError):
        return False
    return isinstance(document, dict) and document.get("code") == "idempotency_in_progress"
