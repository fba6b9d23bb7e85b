"""Limits of calls to a provider, at once and by the second, over all processes.

A provider refuses too many calls for every process alike, and a slow one must not bind all our threads. Shoppers'
questions (`payments.attempts.asking`) have a share of both and never wait. Without Redis calls go out unlimited:
the provider's own limits remain, and our numbers make a refused call safe to repeat.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from idempotency.locks import PermitExpirableSemaphore, RateExceeded, RateLimiter
from payments.channels.sharing import give_back, shared
from payments.conf import config
from payments.errors import NoRoom

# longer than the wait for a turn and a call, whose time-out is for all its parts; a bill's file alone may take
# longer, and then one more call goes out beside it. No watchdog and no memory of ours holds a permit, so
# whatever becomes of the process or of Redis, it is free again after that
LEASE_SECONDS = 21.0

RATE_SECONDS = 1.0  # what `Limits.calls_per_second` counts over

SHOPPERS = "shoppers"
SHOPPERS_SHARE = 0.25  # of the calls at once and of the rate

PERMIT, RATE = "provider permit", "provider rate"
_UNLIMITED: str | None = ""

_is_for_shopper: ContextVar[bool] = ContextVar("is_for_shopper", default=False)


@contextmanager
def for_shopper() -> Iterator[None]:
    """Let the calls inside give way to all others."""
    before = _is_for_shopper.set(True)
    try:
        yield
    finally:
        _is_for_shopper.reset(before)


@contextmanager
def outbound(account: str) -> Iterator[None]:
    """Wait for room for a call to the provider of `account`: 3 or 5 Redis commands.

    Raises NoRoom: not within `Limits.wait_seconds`, or (`for_shopper`) not now; nothing was sent.

    Transaction: NONE may be open, as for the call itself.
    """
    is_for_shopper, limits = _is_for_shopper.get(), config().limits
    deadline = time.monotonic() + (0 if is_for_shopper else limits.wait_seconds)
    with ExitStack() as held:
        if is_for_shopper:
            held.enter_context(_permit(f"{account}:{SHOPPERS}", _share(limits.calls), deadline))
        held.enter_context(_permit(account, limits.calls, deadline))
        # the rate comes last, so that a call begins when its turn is, and not after another wait
        _wait_turn(account, deadline, SHOPPERS if is_for_shopper else None)
        yield


def _share(most: int) -> int:
    return max(1, int(most * SHOPPERS_SHARE))


def _permits(name: str, most: int, redis: object) -> PermitExpirableSemaphore:
    return PermitExpirableSemaphore(f"provider:{name}", permits=most, client=redis)


@contextmanager
def _permit(name: str, most: int, deadline: float) -> Iterator[None]:
    """Hold a permit; none where Redis is away, which is safe: see the module."""

    def ask(redis: object) -> str | None:
        permits = _permits(name, most, redis)
        # at once first: only who has to wait needs a subscription. Neither passes those who wait already
        return permits.acquire(lease_seconds=LEASE_SECONDS, wait_seconds=0) or permits.acquire(
            lease_seconds=LEASE_SECONDS, wait_seconds=_left(deadline)
        )

    permit = shared(PERMIT, ask, otherwise=_UNLIMITED)
    if permit is None:
        raise NoRoom(f"{most} calls to {name} are running, and none of them ended in time")
    try:
        yield
    finally:
        if permit:
            give_back(PERMIT, lambda redis: _permits(name, most, redis).release(permit))


def _wait_turn(account: str, deadline: float, caller: str | None) -> None:
    """Sleep until the rate allows one more; not where Redis is away, which is safe."""
    most = config().limits.calls_per_second

    def ask(redis: object) -> None:
        RateLimiter(
            f"provider:{account}",
            permits=most,
            interval_seconds=RATE_SECONDS,
            permits_per_client=_share(most),
            client=redis,
        ).acquire(caller=caller, wait_seconds=_left(deadline))

    try:
        shared(RATE, ask, otherwise=None)
    except RateExceeded as full:
        raise NoRoom(f"{most} calls a second to {account} are all taken") from full


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
