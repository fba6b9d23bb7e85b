"""`RateLimiter`: n permits an interval over all processes, overall and for each client; exact, in one command.

In no span of the interval's length more than n permits are given. Who waits is given its time at once and sleeps
until then: nobody polls, and nobody who came later passes.
"""

from typing import Any

from idempotency.locks.engine.holds import MICROSECONDS, bounded
from idempotency.locks.engine.hub import Hub, script, tagged
from idempotency.locks.engine.steps import Ask, Pause, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import LockTimeout

_LIMIT, _GIVE_BACK = script("ratelimit"), script("giveback")
FOR_EVER = 2**53 - 1  # microseconds; the script's numbers are doubles


class RateExceeded(LockTimeout):
    """No permit within the time that the caller would wait.

    Attributes:
        retry_after_seconds: after which one could be had, if nobody else came.
    """

    def __init__(self, name: str, retry_after_seconds: float) -> None:
        super().__init__(f"{name!r} has no permit for another {retry_after_seconds:.3f} s.")
        self.retry_after_seconds = retry_after_seconds


class Limiter:
    """The source of both faces.

    Args:
        name: any text; the same name is the same limit everywhere.
        permits: how many an interval.
        interval_seconds: its length; at most 1e9, which is 31 years.
        permits_per_client: how many of them one client may have; None: as many as there are.
        client: a redis-py client, as of `Lock`.
    """

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
        self.name = name
        self.client = client
        self._permits = permits
        self._per_client = permits_per_client
        self._interval = round(bounded("interval_seconds", interval_seconds) * MICROSECONDS)
        tagged("rate", name)  # refuses a bad name here

    def hub(self) -> Hub:
        """Where it is asked for."""
        raise NotImplementedError

    @operation
    def acquire(
        self, permits: int = 1, *, caller: str | None = None, wait_seconds: float | None = 0.0
    ) -> Steps[None]:
        """Take permits, and sleep until they are valid.

        Args:
            permits: how many, at once.
            caller: whose share it counts to, for `permits_per_client`.
            wait_seconds: how long the caller would sleep at most; None: as long as it takes.

        Raises:
            RateExceeded: it would be longer; nothing was taken.
            LockUnavailable: Redis did not answer; who limits for protection decides what that means.
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
        """Take the newest permits back, because what they were for does not count after all.

        Args:
            permits, caller: as `acquire` was given them.

        Raises:
            LockUnavailable: Redis did not answer; they count until their interval is over.
        """
        yield Ask(_GIVE_BACK, list(self._limits(caller)), [permits])

    def _limits(self, caller: str | None) -> dict[str, int]:
        """Key -> permits an interval, of everybody and of this caller."""
        key = tagged("rate", self.name)
        limits = {key: self._permits}
        if caller is not None and self._per_client is not None:
            limits[f"{key}:{caller}"] = self._per_client
        return limits


class RateLimiter(OnThreads, Limiter):
    """A limit for threads and processes; see `Limiter` for its arguments."""


class AsyncRateLimiter(OnTasks, Limiter):
    """`RateLimiter` for asyncio."""
