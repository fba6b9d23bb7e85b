"""Kinds of locks, and how each is asked for by name and released by force."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency.arguments import LONGEST_SECONDS
from idempotency.conf import config
from idempotency.locks import (
    CountDownLatch,
    FairLock,
    HostSemaphore,
    LockError,
    LockUnavailable,
    NotHeld,
    Owner,
    PermitExpirableSemaphore,
    RateLimiter,
    ReadWriteLock,
    RedLock,
    Semaphore,
    State,
    TokenBucket,
)
from idempotency.locks.postgres import AdvisoryLock

ANSWER_SECONDS = 2.0  # for a server of RedLock or ZooKeeper
PROBE = 1_000_000  # permits of a limiter that only asks; in so long an interval it drops nothing
FORGET_SECONDS = 40 * 86_400.0  # longest interval of the callers whose permits are forgotten


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of lock; without `has_holders` it is ended as a whole."""

    words: Any
    make: Any
    has_holders = True
    server = "redis"  # one of `servers`

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        yield self.make(name)

    def state(self, lock: Any) -> State:
        state: State = lock.state()
        return state

    def facts(self, lock: Any) -> list[str]:
        """Ask what else there is to know, in words; nothing where it is not in use."""
        return []

    def end(self, lock: Any, owner: Owner | None) -> bool:
        """Take it from one holder; return whether that had it still."""
        return owner is not None and bool(lock.force_release(token=owner.token))


class Permits(Kind):
    """Semaphore, whose holders are one acquire each."""

    def facts(self, lock: Any) -> list[str]:
        total = lock.total()
        return [_("%(total)s permits in all, by the server's number") % {"total": total}] if total else []


class NamedPermits(Permits):
    """Semaphore whose permits have names, with which anyone gives them back."""

    def end(self, lock: Any, owner: Owner | None) -> bool:
        try:
            lock.release(f"{owner.name}@{owner.token}" if owner else "")
        except NotHeld:
            return False
        return True


class Latch(Kind):
    """Latch, whose waiters go on when it is ended."""

    has_holders = False

    def facts(self, lock: Any) -> list[str]:
        left = lock.count()
        return [_("%(count)s left") % {"count": left}] if left else []

    def end(self, lock: Any, owner: Owner | None) -> bool:
        return bool(lock.delete())


class Limit(Latch):
    """Limiter; without a rate on the server only its callers know theirs."""

    def state(self, lock: Any) -> State:
        return State((), ())

    def facts(self, lock: Any) -> list[str]:
        rate = lock.rate()
        if rate.permits == PROBE:
            counted = PROBE - lock.available()
            words = _("%(count)s permits counted; each caller brings its rate")
            return [words % {"count": counted}] if counted else []
        about = {"permits": rate.permits, "seconds": f"{rate.interval_seconds:g}", "free": lock.available()}
        if share := rate.permits_per_client:
            words = _("%(permits)s permits in %(seconds)s s, %(share)s of a caller; %(free)s free")
            each = _("%(caller)s has used %(used)s of its %(share)s")
            used = [each % {"caller": one, "used": used, "share": share} for one, used in lock.shares().items()]
            return [words % {**about, "share": share}, *used]
        return [_("%(permits)s permits in %(seconds)s s; %(free)s free") % about]

    def end(self, lock: Any, owner: Owner | None) -> bool:
        used = bool(self.facts(lock))
        type(lock)(lock.name, permits=1, interval_seconds=FORGET_SECONDS).delete()
        return used


class Advisory(Kind):
    """Lock of PostgreSQL, whose holder's session is ended."""

    server = ""

    def end(self, lock: Any, owner: Owner | None) -> bool:
        owners = lock.state().owners
        if len(owners) > 1:
            raise LockError(f"{len(owners)} sessions share it: pg_terminate_backend ends one.")
        return owner is not None and [each.name for each in owners] == [owner.name] and bool(lock.force_release())


class OneHost(Kind):
    """Permits of this machine and user, in the folder that is the default."""

    server = ""

    def end(self, lock: Any, owner: Owner | None) -> bool:
        raise LockError("Only the end of its process or its own release gives it back.")


class Majority(Kind):
    """RedLock, whose holder is released on each server by its token there."""

    server = "redlock"

    def end(self, lock: Any, owner: Owner | None) -> bool:
        ended = False
        for node in lock.locks:
            with suppress(LockUnavailable):
                for one in node.state().owners:
                    if owner is not None and one.name == owner.name:
                        ended |= node.force_release(token=one.token)
        return ended


class Queue(Kind):
    """Lock of ZooKeeper, asked over a session of its own."""

    server = "zookeeper"

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        from kazoo.client import KazooClient  # noqa: PLC0415  an extra, which the setting requires at start
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415

        client = KazooClient(config().lock_servers["zookeeper"])
        try:
            client.start(timeout=ANSWER_SECONDS)
            yield self.make(name, client)
        except KazooTimeoutError as error:
            raise LockUnavailable(f"ZooKeeper did not reply for {ANSWER_SECONDS:g} s.") from error
        finally:
            client.stop()
            client.close()

    def state(self, lock: Any) -> State:
        owners = lock.state().owners
        return State(owners, tuple(lock.contenders()[len(owners) :]))


class QueuedPermits(Queue):
    """Semaphore of ZooKeeper; callers bring its number, so all that left its queue hold it."""

    def state(self, lock: Any) -> State:
        state = super().state(lock)
        # the head of the queue has a node among the permits before one is free
        waits = state.waiters[:1] == tuple(owner.name for owner in state.owners[-1:])
        return State(state.owners[:-1], state.waiters) if waits else state


def servers() -> set[str]:
    """Name the servers to ask; an empty name is this machine or the ledger's database."""
    return {"", *config().lock_servers} | ({"redis"} if config().uses_redis else set())


@lru_cache(maxsize=1)
def _clients(urls: tuple[str, ...]) -> list[Any]:
    """Make a client for each server once: each has a subscriber."""
    times = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    return [Redis.from_url(url, retry=Retry(NoBackoff(), 0), **times) for url in urls]


def _of_zookeeper(kind: str, **settings: Any) -> Any:
    def make(name: str, client: Any) -> Any:
        from idempotency.locks import zookeeper  # noqa: PLC0415  needs an extra

        return getattr(zookeeper, kind)(name, client=client, **settings)

    return make


def _limiter(kind: Any) -> Any:
    return lambda name: kind(name, permits=PROBE, interval_seconds=LONGEST_SECONDS)


KINDS = {
    "lock": Kind("Lock, FairLock", FairLock),
    "read": Kind(gettext_lazy("ReadWriteLock, readers"), lambda name: ReadWriteLock(name).read),
    "write": Kind(gettext_lazy("ReadWriteLock, writer"), lambda name: ReadWriteLock(name).write),
    "semaphore": Permits("Semaphore", Semaphore),
    "permits": NamedPermits("PermitExpirableSemaphore", PermitExpirableSemaphore),
    "latch": Latch("CountDownLatch", CountDownLatch),
    "rate": Limit("RateLimiter", _limiter(RateLimiter)),
    "bucket": Limit("TokenBucket", _limiter(TokenBucket)),
    "redlock": Majority(
        "RedLock", lambda name: RedLock(name, clients=_clients(tuple(config().lock_servers["redlock"])))
    ),
    "zookeeper": Queue("ZooKeeperLock", _of_zookeeper("ZooKeeperLock")),
    "zookeeper-permits": QueuedPermits("ZooKeeperSemaphore", _of_zookeeper("ZooKeeperSemaphore", permits=PROBE)),
    "host": OneHost("HostSemaphore", lambda name: HostSemaphore(name, permits=1)),
    "advisory": Advisory("AdvisoryLock", lambda name: AdvisoryLock(name, using=config().database)),
}
