"""Locks of `idempotency.locks` for asyncio and `redis.asyncio`, under the same names."""

from idempotency.locks.engine.tasks import close
from idempotency.locks.errors import LockError, LockLost, LockTimeout, LockUnavailable, NotHeld, UpgradeRefused
from idempotency.locks.expiring import AsyncExpiringSet as ExpiringSet
from idempotency.locks.latch import AsyncCountDownLatch as CountDownLatch
from idempotency.locks.multi import AsyncMultiLock as MultiLock
from idempotency.locks.mutex import AsyncFairLock as FairLock
from idempotency.locks.mutex import AsyncLock as Lock
from idempotency.locks.onehost import AsyncHostSemaphore as HostSemaphore
from idempotency.locks.ratelimit import AsyncRateLimiter as RateLimiter
from idempotency.locks.ratelimit import AsyncTokenBucket as TokenBucket
from idempotency.locks.ratelimit import Rate, RateExceeded
from idempotency.locks.readwrite import AsyncReadWriteLock as ReadWriteLock
from idempotency.locks.redlock import AsyncRedLock as RedLock
from idempotency.locks.semaphore import AsyncPermitExpirableSemaphore as PermitExpirableSemaphore
from idempotency.locks.semaphore import AsyncSemaphore as Semaphore
from idempotency.locks.state import Owner, State
from idempotency.locks.synchronized import synchronized
from idempotency.locks.topic import AsyncTopic as Topic

# that of the package and `close`, in a form that type checkers read
__all__ = ["CountDownLatch", "ExpiringSet", "FairLock", "HostSemaphore", "Lock", "LockError", "LockLost"]
__all__ += ["LockTimeout", "LockUnavailable", "MultiLock", "NotHeld", "Owner", "PermitExpirableSemaphore", "Rate"]
__all__ += ["RateExceeded", "RateLimiter", "ReadWriteLock", "RedLock", "Semaphore", "State", "TokenBucket"]
__all__ += ["Topic", "UpgradeRefused", "close", "synchronized"]
