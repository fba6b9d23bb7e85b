"""Distributed locks, semaphores, limits and topics, as docs/reference/locks.md promises.

Public, a kind a module; `aio` has the same names for asyncio, `postgres` and `zookeeper` have locks of their own.
Never keeps a promise about money: constraints do. `engine` is private to the kinds.
"""

from idempotency.locks.errors import LockError, LockLost, LockTimeout, LockUnavailable, NotHeld, UpgradeRefused
from idempotency.locks.expiring import ExpiringSet
from idempotency.locks.latch import CountDownLatch
from idempotency.locks.multi import MultiLock
from idempotency.locks.mutex import FairLock, Lock
from idempotency.locks.onehost import HostSemaphore
from idempotency.locks.ratelimit import Rate, RateExceeded, RateLimiter, TokenBucket
from idempotency.locks.readwrite import ReadWriteLock
from idempotency.locks.redlock import RedLock
from idempotency.locks.semaphore import PermitExpirableSemaphore, Semaphore
from idempotency.locks.state import Owner, State
from idempotency.locks.synchronized import synchronized
from idempotency.locks.topic import Topic

__all__ = [
    "CountDownLatch",
    "ExpiringSet",
    "FairLock",
    "HostSemaphore",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "LockUnavailable",
    "MultiLock",
    "NotHeld",
    "Owner",
    "PermitExpirableSemaphore",
    "Rate",
    "RateExceeded",
    "RateLimiter",
    "ReadWriteLock",
    "RedLock",
    "Semaphore",
    "State",
    "TokenBucket",
    "Topic",
    "UpgradeRefused",
    "synchronized",
]
