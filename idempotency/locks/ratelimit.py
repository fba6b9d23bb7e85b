"""`RateLimiter`: n permits an interval over all processes, overall and for each client; exact, in one command.

In no span of the interval's length more than n permits are given. A caller that waits gets its time at once and
sleeps until then: nobody polls, and no later caller passes.
"""

from typing import Any

from idempotency.locks.engine.holds import MICROSECONDS, bounded
from idempotency.locks.engine.hub import Resource, script
from idempotency.locks.engine.steps import Ask, Pause, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import LockTimeout

_LIMIT, _GIVE_BACK = script("ratelimit"), script("giveback")
FOR_EVER = 2**53 - 1  # microseconds; the script's numbers are doubles


class RateExceeded(LockTimeout):
    """No permit was free within the time that the caller would wait.

    Attributes:
        retry_after_seconds: time to the next permit, if nobody else comes.
    """

    def __init__(self, name: str, retry_after_seconds: float) -> None:
        super().__init__(f"{name!r} has no permit for another {retry_after_seconds:.3f} s.")
        self.retry_after_seconds = retry_after_seconds


class Limiter(Resource):
    """Source of both faces.

    Args:
        name, client: as of `Resource`.
        permits: number of permits an interval.
        interval_seconds: its length; at most 1e9, which is 31 years.
        permits_per_client: share of one caller; None: all of them.
    """

    _kind = "rate"

    def __init__(
        self,
        name: str,
        *,
        permits: int,
        interval_seconds: float,
        permits_per_client: int | None = None,
        client: Any = None,
    ) -> None:
        if permits < 1 or (permits_per_client is not None and permits_per_client < 1):
            raise ValueError("permits and permits_per_client must be at least 1")
        super().__init__(name, client=client)
        self._permits = permits
        self._per_client = permits_per_client
        self._interval = round(bounded("interval_seconds", interval_seconds) * MICROSECONDS)

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
            RateExceeded: it would be longer; nothing was taken.
            LockUnavailable: Redis did not reply; the caller decides what that means.
        """
        limits = self._limits(caller)
        if not 1 <= permits <= min(limits.values()):
            raise ValueError(f"permits must be 1 to {min(limits.values())}, not {permits}")
        longest = FOR_EVER if wait_seconds is None else round(min(wait_seconds * MICROSECONDS, FOR_EVER))
        arguments = [permits, self._interval, longest, self.hub().new_request(), *limits.values()]
        given, wait = yield Ask(_LIMIT, list(limits), arguments)
        if not given:
            raise RateExceeded(self.name, wait / MICROSECONDS)
        if wait:
            yield Pause(wait / MICROSECONDS)

    @operation
    def give_back(self, permits: int = 1, *, caller: str | None = None) -> Steps[None]:
        """Return the newest permits, because their use does not count after all.

        Args:
            permits, caller: as of `acquire`.

        Raises:
            LockUnavailable: Redis did not reply; they count until their interval is over.
        """
        yield Ask(_GIVE_BACK, list(self._limits(caller)), [permits])

    def _limits(self, caller: str | None) -> dict[str, int]:
        """Return permits an interval by key, of everybody and of this caller."""
        key = self._key
        limits = {key: self._permits}
        if caller is not None and self._per_client is not None:
            limits[f"{key}:{caller}"] = self._per_client
        return limits


class RateLimiter(OnThreads, Limiter):
    """Limit for threads and processes; see `Limiter` for its arguments."""


class AsyncRateLimiter(OnTasks, Limiter):
    """`RateLimiter` for asyncio."""
