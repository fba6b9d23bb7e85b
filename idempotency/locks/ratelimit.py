"""`RateLimiter` and `TokenBucket`: n permits an interval, overall and for each client.

A `RateLimiter` is exact: in no span of the interval's length more than n permits are given. A `TokenBucket` gives
n at once, fills evenly within the interval, and stores two numbers. A caller that waits gets its time at once and
sleeps until then: nobody polls, and no later caller passes.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from django.utils.encoding import force_str

from idempotency.arguments import NUMBER_MAX, bounded, text, whole_number
from idempotency.locks.engine.holds import MICROSECONDS
from idempotency.locks.engine.hub import Resource, script
from idempotency.locks.engine.steps import Ask, Finish, Pause, Steps, bound_of, deadline_of, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.engine.waits import Rest, Waited
from idempotency.locks.errors import LockError, LockTimeout, LockUnavailable

_LIMIT = script("ratelimit")
SILENCE_SECONDS = 2.0  # borne of a server beyond the wait, and by what undoes one


class RateExceeded(LockTimeout):
    """No permit was free within the time that the caller would wait.

    Attributes:
        retry_after_seconds: time to the next permit, if nobody else comes.
    """

    def __init__(self, name: str, retry_after_seconds: float) -> None:
        super().__init__(name, retry_after_seconds)  # as it takes them, or a worker's cannot be unpickled
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return "{!r} has no permit for another {:.3f} s.".format(*self.args)


class Rate(NamedTuple):
    """Permits an interval (at most 1e9 seconds), and a caller's share of them, None: all."""

    permits: int
    interval_seconds: float
    permits_per_client: int | None = None

    def checked(self) -> list[int]:
        """Return it as ratelimit.lua reads it, or raise `ValueError`."""
        interval = max(1, round(bounded("interval_seconds", self.interval_seconds) * MICROSECONDS))
        permits, share = whole_number("permits", self.permits), self.permits_per_client
        return [permits, interval, 0 if share is None else whole_number("permits_per_client", share)]


class Limiter(Waited, Resource):
    """Source of both faces.

    Args:
        name, client, prefix: as of `Resource`.
        permits, interval_seconds, permits_per_client: as of `Rate`, while the server has none; None: no permits.
    """

    _kind = "rate"

    def __init__(
        self,
        name: str,
        *,
        permits: int | None = None,
        interval_seconds: float = 1.0,
        permits_per_client: int | None = None,
        client: Any = None,
        prefix: str | None = None,
    ) -> None:
        super().__init__(name, client=client, prefix=prefix)
        self._rate = Rate(1 if permits is None else permits, interval_seconds, permits_per_client).checked()
        if permits is None:
            self._rate[0] = 0

    @operation
    def acquire(
        self, permits: int = 1, *, caller: str | None = None, wait_seconds: float | None = 0.0
    ) -> Steps[None]:
        """Take permits, and sleep until they are valid.

        Args:
            permits: number of permits, taken together.
            caller: owner of the share that they count to, for `permits_per_client`.
            wait_seconds: the longest that the caller would sleep; None: as long as it takes.

        Raises:
            RateExceeded: it would be longer, or the wait was cancelled; nothing was taken.
            LockUnavailable: Redis did not reply; the caller decides what that means.
            ValueError: the rate never gives so many.
        """
        limit = self._limit(wait_seconds)
        longest = NUMBER_MAX if limit is None else round(limit * MICROSECONDS)
        ask = self._ask("acquire", whole_number("permits", permits), longest, caller or "", caller=caller)
        ask.seconds = bound_of(deadline_of(limit), least=SILENCE_SECONDS)
        rest, given = Rest(float("inf"), self.hub().bell()), 0
        try:
            given, wait = (yield ask)[0]
            if given > 0 and wait:
                self._waits.add(rest)
                yield Pause(wait / MICROSECONDS, rest.bell)
            if rest.deadline == 0.0:  # cancelled
                raise RateExceeded(self.name, wait / MICROSECONDS)
        except (GeneratorExit, LockUnavailable):  # nobody performs steps any more, or replies
            raise
        except BaseException:  # an interrupt too
            yield Finish(self._undo(ask, given, permits, caller))
            raise
        finally:
            self._waits.discard(rest)
        if given < 0:
            raise ValueError(f"permits must be 1 to {wait}, not {permits}")
        if not given:
            raise RateExceeded(self.name, wait / MICROSECONDS)

    def _undo(self, ask: Ask, given: int, permits: int, caller: str | None) -> Steps[None]:
        release = self._ask("release", permits, ask.arguments[1], caller=caller)
        ask.seconds = release.seconds = SILENCE_SECONDS
        with suppress(LockError):
            if not given:  # the reply was not seen: the same request gets it again
                given = (yield ask)[0][0]
            if given > 0:
                yield release

    @operation
    def release(self, permits: int = 1, *, caller: str | None = None) -> Steps[None]:
        """Return the newest permits: their use does not count after all. Arguments as of `acquire`."""
        yield self._ask("release", whole_number("permits", permits), caller=caller)

    @operation
    def available(self, *, caller: str | None = None) -> Steps[int]:
        """Return how many permits there are now, for all or for `caller`."""
        return int((yield self._ask("available", caller=caller))[0])

    @operation
    def shares(self, *, most: int = 100) -> Steps[dict[str, int]]:
        """Ask how many permits of its share each of the latest callers has used: two commands."""
        ask = self._ask("clients", whole_number("most", most))
        ask.keys.append(f"{self._key}#clients")
        callers = [force_str(caller) for caller in (yield ask)[0]]
        ask = self._ask("shares")
        ask.keys += [f"{self._key}:{caller}" for caller in callers]
        used = (yield ask)[0] if callers else ()
        return {caller: count for caller, count in zip(callers, used, strict=True) if count}

    @operation
    def rate(self) -> Steps[Rate]:
        """Return the rate that counts: the server's, or else the constructor's."""
        permits, interval, share = (yield self._ask("rate"))[0]
        return Rate(permits, interval / MICROSECONDS, share or None)

    @operation
    def set_rate(self, rate: Rate, *, clear: bool = False, if_absent: bool = False) -> Steps[bool]:
        """Store a rate on the server, for every caller; return whether it was stored.

        Args:
            clear: forget what was used, but not what callers wait for.
            if_absent: leave one that is stored as it is.
        """
        if not isinstance(rate, Rate):
            raise ValueError(f"rate must be a Rate, such as Rate(permits=10, interval_seconds=1.0), not {rate!r}")
        return bool((yield self._ask("init" if if_absent else "set", *rate.checked(), int(clear)))[0])

    @operation
    def delete(self) -> Steps[bool]:
        """Forget usage and the server's rate, so the constructor's counts. Return if it had one."""
        return bool((yield self._ask("delete"))[0])

    def _ask(self, *what: Any, caller: str | None = None) -> Ask:
        key, request = self._key, self.hub().new_request()
        keys = [f"{key}#rate", f"{key}#{request}", key]  # a caller's begin with another character after the name
        if caller is not None:
            keys += [f"{key}:{text('caller', caller)}", f"{key}#clients"]
        return Ask(_LIMIT, keys, [self._kind, request, *self._rate, *what])


class RateLimiter(OnThreads, Limiter):
    """Limit for threads and processes; see `Limiter` for its arguments."""


class AsyncRateLimiter(OnTasks, Limiter):
    """`RateLimiter` for asyncio."""


class TokenBucket(RateLimiter):
    """Limit by a bucket; see `Limiter` for its arguments."""

    _kind = "bucket"


class AsyncTokenBucket(AsyncRateLimiter):
    """`TokenBucket` for asyncio."""

    _kind = "bucket"
