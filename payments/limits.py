"""How many calls to a provider run at once, and how many begin a second, over all processes.

A provider refuses a caller who comes too often, for every process alike; and a slow provider must not bind every
thread that we have. Whoever finds no room waits a bounded time and then fails before anything was sent. Without
Redis calls go out unlimited: the provider's own limits are still there, and our numbers make a call that it
refused safe to repeat.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from idempotency.locks import PermitExpirableSemaphore, RateExceeded, RateLimiter
from payments.errors import ProviderUnavailable
from payments.sharing import give_back, shared

# longer than the wait for a turn and a call, whose time-out is for all its parts; a bill's file alone may take
# longer, and then one more call goes out beside it. A permit is kept by no watchdog and in no memory of ours, so
# whatever becomes of the process or of Redis, it is free again after that
LEASE_SECONDS = 21.0

RATE_SECONDS = 1.0  # what PROVIDER_CALLS_PER_SECOND counts over

PERMIT, RATE = "provider permit", "provider rate"
_UNLIMITED: str | None = ""


@contextmanager
def outbound(channel: str) -> Iterator[None]:
    """Around one call to the provider of `channel`: three commands to Redis, two more for who has to wait.

    Raises:
        ProviderUnavailable: no room within `PROVIDER_WAIT_SECONDS`; nothing was sent.

    Transaction: NONE may be open, as for the call itself.
    """
    deadline = time.monotonic() + settings.PROVIDER_WAIT_SECONDS
    permit = _take_permit(channel, deadline)
    try:
        # the rate comes last, so that a call begins when its turn is, and not after another wait
        _wait_turn(channel, deadline)
        yield
    finally:
        if permit:
            give_back(PERMIT, lambda redis: _permits(channel, redis).release(permit))


def _permits(channel: str, redis: object) -> PermitExpirableSemaphore:
    return PermitExpirableSemaphore(f"provider:{channel}", permits=settings.PROVIDER_CALLS_MAX, client=redis)


def _take_permit(channel: str, deadline: float) -> str:
    """Its name; `_UNLIMITED` where Redis is away, which is safe: see the module."""

    def ask(redis: object) -> str | None:
        permits = _permits(channel, redis)
        # at once first: only who has to wait needs a subscription. Neither passes those who wait already
        return permits.acquire(lease_seconds=LEASE_SECONDS, wait_seconds=0) or permits.acquire(
            lease_seconds=LEASE_SECONDS, wait_seconds=_left(deadline)
        )

    permit = shared(PERMIT, ask, otherwise=_UNLIMITED)
    if permit is None:
        raise ProviderUnavailable(
            f"{settings.PROVIDER_CALLS_MAX} calls to {channel} are running, and none of them ended in time"
        )
    return permit


def _wait_turn(channel: str, deadline: float) -> None:
    """Sleep until the rate allows one more; not at all where Redis is away, which is safe: see the module."""

    def ask(redis: object) -> None:
        RateLimiter(
            f"provider:{channel}",
            permits=settings.PROVIDER_CALLS_PER_SECOND,
            interval_seconds=RATE_SECONDS,
            client=redis,
        ).acquire(wait_seconds=_left(deadline))

    try:
        shared(RATE, ask, otherwise=None)
    except RateExceeded as full:
        raise ProviderUnavailable(
            f"{settings.PROVIDER_CALLS_PER_SECOND} calls a second to {channel} are all taken"
        ) from full


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
