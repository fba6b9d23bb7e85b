"""The locks that are measured: ours, the raw limit, and the packages that a user of Redis would pick instead.

Read by the benchmark and by its processes, which run in the peers' venvs; so every import of a lock is late.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.variants import Peer

LEASE_SECONDS = 30  # what a peer's lock is given where ours has its default, which is as long
RENEWED_LEASE_SECONDS = 15  # python-redis-lock renews after two thirds: every 10 s then, as ours does

PYTHON_REDIS_LOCK = Peer("python-redis-lock", ("python-redis-lock", "redis", "hiredis"))
POTTERY = Peer("pottery", ("pottery", "redis", "hiredis"))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock.

    Attributes:
        title: in the tables.
        make: (client, name, lease seconds or None for what is usual) -> something with `acquire` and `release`.
        sent: commands in INFO commandstats that add up to what the client sends, and not to what scripts call.
        peer: whose venv has it; None for ours, which has redis-py too.
    """

    title: str
    make: Callable[[Any, str, float | None], Any]
    sent: tuple[str, ...]
    peer: Peer | None = None


class _Raw:
    """Two scripts that do nothing: what one client can do at the most."""

    def __init__(self, client: Any) -> None:
        sha = client.script_load("return 1")
        self.acquire = self.release = partial(client.evalsha, sha, 1, "key", "arg")


def _raw(client: Any, name: str, lease: float | None) -> Any:
    return _Raw(client)


def _ours(kind: str, client: Any, name: str, lease: float | None) -> Any:
    from idempotency import locks

    return getattr(locks, kind)(name, client=client, lease_seconds=lease)


def _redis_py(sleep: float, client: Any, name: str, lease: float | None) -> Any:
    return client.lock(name, timeout=lease or LEASE_SECONDS, sleep=sleep)


def _python_redis_lock(client: Any, name: str, lease: float | None) -> Any:
    from redis_lock import Lock

    return Lock(client, name, expire=int(lease or LEASE_SECONDS))


def _python_redis_lock_renewed(client: Any, name: str, lease: float | None) -> Any:
    from redis_lock import Lock

    return Lock(client, name, expire=int(lease or RENEWED_LEASE_SECONDS), auto_renewal=True)


def _pottery(client: Any, name: str, lease: float | None) -> Any:
    from pottery import Redlock

    return Redlock(key=name, masters={client}, auto_release_time=lease or LEASE_SECONDS)


_SCRIPTS = ("evalsha", "eval")
_SET_AND_SCRIPT = ("set", "evalsha")
# its release script calls one GET, so the GETs counted are those sent and the scripts together
_GETS = ("get", "set", "blpop")

RAW = Kind("two EVALSHA of `return 1`", _raw, ("evalsha",))
LOCK = Kind("Lock", partial(_ours, "Lock"), _SCRIPTS)
FAIR_LOCK = Kind("FairLock", partial(_ours, "FairLock"), _SCRIPTS)
OURS = (LOCK, FAIR_LOCK)
REDIS_PY = Kind("redis-py Lock", partial(_redis_py, 0.1), _SET_AND_SCRIPT)
REDIS_PY_EAGER = Kind("redis-py Lock, sleep=0.001", partial(_redis_py, 0.001), _SET_AND_SCRIPT)
BLPOP = Kind("python-redis-lock", _python_redis_lock, _GETS, PYTHON_REDIS_LOCK)
BLPOP_RENEWED = Kind(
    "python-redis-lock, auto_renewal", _python_redis_lock_renewed, ("evalsha",), PYTHON_REDIS_LOCK
)
REDLOCK = Kind("pottery Redlock", _pottery, _SET_AND_SCRIPT, POTTERY)

UNCONTENDED = (RAW, LOCK, FAIR_LOCK, REDIS_PY, BLPOP, REDLOCK)
CONTENDED = (LOCK, FAIR_LOCK, REDIS_PY, REDIS_PY_EAGER, BLPOP, REDLOCK)
HELD = (LOCK, BLPOP_RENEWED)  # the others have no watchdog
WAITED = (LOCK, REDIS_PY, BLPOP)
ALL = {kind.title: kind for kind in (*UNCONTENDED, *CONTENDED, *HELD)}

# for asyncio; pottery's lock of asyncio is the one above in another dress
ASYNC_RAW, ASYNC_LOCK, ASYNC_FAIR_LOCK, ASYNC_REDIS_PY = (
    "asyncio: two EVALSHA of `return 1`",
    "asyncio: Lock",
    "asyncio: FairLock",
    "asyncio: redis-py Lock",
)
ASYNC = (ASYNC_RAW, ASYNC_LOCK, ASYNC_FAIR_LOCK, ASYNC_REDIS_PY)


async def make_async(title: str, client: Any, name: str) -> Any:
    """A lock of `ASYNC` on a client of redis.asyncio."""
    from idempotency.locks import aio

    if title == ASYNC_RAW:
        raw = _Raw.__new__(_Raw)
        raw.acquire = raw.release = partial(client.evalsha, await client.script_load("return 1"), 1, "key", "arg")
        return raw
    if title == ASYNC_REDIS_PY:
        return client.lock(name, timeout=LEASE_SECONDS)
    return (aio.Lock if title == ASYNC_LOCK else aio.FairLock)(name, client=client)
