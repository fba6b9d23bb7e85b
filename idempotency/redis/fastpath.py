"""Access to Redis while it replies. Every use in this package goes through `attempt`.

A command is bounded by the client's time-outs. After a failure the breaker keeps this process away from Redis for
`BREAKER_SECONDS`, and the caller does without.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

from django.core.cache import InvalidCacheBackendError
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError
from redis.retry import Retry

from idempotency.conf import config
from idempotency.names import prefix
from idempotency.observability import metrics
from idempotency.redis.connection import Connection, connection_of

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.2  # of a client by URL, unless that says another

# errors of a client whose servers do not serve; some of a Cluster's own are no RedisError
FAILURES = (RedisError, RedisClusterException, OSError)

T = TypeVar("T")


class Breaker:
    """Breaker: closed until `failed()`, open for `open_seconds`; then one call is a probe.

    Per process and thread-safe; the clock is monotonic.

    Attributes:
        is_closed: no failure is known; False for the probe too, which must wait for its reply.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Close, with a lock that nobody has: in a forked child the one that held it is not there."""
        self._lock = threading.Lock()
        self.is_closed = True
        self._open_until = 0.0

    def allows(self, *, open_seconds: float) -> bool:
        """Return whether to try. After the pause one caller may; the others wait another pause."""
        with self._lock:
            now = time.monotonic()
            if not self.is_closed:
                if now < self._open_until:
                    return False
                self._open_until = now + open_seconds
            return True

    def failed(self, *, open_seconds: float) -> None:
        with self._lock:
            self.is_closed, self._open_until = False, time.monotonic() + open_seconds

    def succeeded(self) -> None:
        with self._lock:
            self.is_closed = True


breaker = Breaker()
os.register_at_fork(after_in_child=breaker.begin)


def client() -> Any:
    settings = config()
    if settings.redis_client is not None:
        return _client_of(settings.redis_client)
    if settings.redis_alias is None:
        raise ImproperlyConfigured(
            "IDEMPOTENCY['REDIS'] names no Redis, and this works on one. Write 'redis://localhost:6379/0' there."
        )
    return _client_of_cache(settings.redis_alias)


def may_ask() -> bool:
    """Return whether to ask Redis: it is switched on, and the breaker allows it."""
    settings = config()
    return settings.uses_redis and (breaker.is_closed or breaker.allows(open_seconds=settings.breaker_seconds))


def attempt(command: Callable[[Any], T]) -> T | None:
    """Run `command` on a client, in time. None if Redis is off, away or replies nonsense."""
    if not may_ask():
        return None
    probing = not breaker.is_closed
    try:
        result = command(client())
    except FAILURES as error:
        failed(error)
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("A value in Redis is not ours to read; working without it.")
        return None
    if probing:  # else a send without a reply would close it, while another thread finds the server away
        breaker.succeeded()
    return result


def failed(error: Exception) -> None:
    seconds = config().breaker_seconds
    breaker.failed(open_seconds=seconds)
    metrics.redis_failures.inc()
    # such as a certificate that is refused; an error of a command may quote what is stored
    reason = error if isinstance(error, RedisConnectionError) else type(error).__name__
    log.warning("Redis is unavailable (%s); doing without it for %g s.", reason, seconds)


def takes_writes() -> bool:
    """Return whether Redis takes a write: one that is full or read-only answers PING."""
    return attempt(lambda redis: bool(redis.set(f"{prefix()}:ping", "", px=1000))) is True


@lru_cache(maxsize=4)
def _client_of_cache(alias: str) -> Any:
    try:
        from django_redis import get_redis_connection  # noqa: PLC0415  an extra, which `checks` requires at start

        # once a process: Django makes a cache for each thread, all of them over one pool
        return get_redis_connection(alias)
    except (ImportError, InvalidCacheBackendError, NotImplementedError) as error:  # a server that runs no checks
        raise ImproperlyConfigured(
            f"CACHES[{alias!r}] is none of django-redis. Set IDEMPOTENCY['REDIS'] to a URL, or to None to go "
            "without Redis."
        ) from error


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "CACHES":
        _client_of_cache.cache_clear()


setting_changed.connect(_forget)


@lru_cache(maxsize=4)
def _client_of(path: str) -> Any:
    # once a process: redis-py's pools notice a fork themselves
    if "://" in path:
        return Redis.from_url(
            path,
            socket_connect_timeout=TIMEOUT_SECONDS,
            socket_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),  # the breaker's part
        )
    return import_string(path)()


class Script:
    """A script of a package's folder `scripts`, after the ones that it shares code with.

    Every key of a call must carry the same hash tag, or a Redis Cluster refuses it.

    Args:
        names: of the files, without ``.lua``, in the order in which they are joined.
        package: whose `scripts` they are in.
    """

    def __init__(self, *names: str, package: str) -> None:
        folder = resources.files(package).joinpath("scripts")
        self.text = "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, client: Any, keys: list[str], arguments: list[Any]) -> Any:
        """Run on this thread's connection to where `client` leads, and return the reply."""
        return self.run(connection_of(client), keys, arguments)

    def run(
        self, connection: Connection, keys: list[str], arguments: list[Any], seconds: float | None = None
    ) -> Any:
        parts = (len(keys), *keys, *arguments)
        try:
            reply = connection.ask("EVALSHA", self.sha, *parts, seconds=seconds)
        except Exception as error:
            if not _is_unknown(error):
                raise
            connection.known.clear()
            reply = connection.ask("EVAL", self.text, *parts, seconds=seconds)
        connection.known.add(self.sha)
        return reply

    def send_nowait(
        self,
        connection: Connection,
        keys: list[str],
        arguments: list[Any],
        *,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """Send without waiting if the server has the script and is not being probed, else `run`.

        Args:
            then: called with the reply when it is read; never, if it is lost.
        """
        if self.sha in connection.known and breaker.is_closed:
            connection.send_nowait("EVALSHA", self.sha, len(keys), *keys, *arguments, then=then)
            return
        reply = self.run(connection, keys, arguments)
        if then is not None:
            then(reply)

    async def run_async(self, ask: Callable[..., Any], keys: list[str], arguments: list[Any]) -> Any:
        """Run by a connection's `ask` that is awaited, and return the reply."""
        parts = (len(keys), *keys, *arguments)
        try:
            return await ask("EVALSHA", self.sha, *parts)
        except Exception as error:
            if not _is_unknown(error):
                raise
            return await ask("EVAL", self.text, *parts)


def _is_unknown(error: Exception) -> bool:
    # by name: valkey-py has a class of its own
    return type(error).__name__ == "NoScriptError"
