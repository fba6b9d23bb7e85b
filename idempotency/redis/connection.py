"""Per-thread Redis connection with fire-and-forget commands.

Each thread keeps one, made beside the client's pool; replies to what it sent without waiting are read before its
next question, in order. A keyed call's commands take 21 µs of CPU here, and 65 by redis-py's pool with its replies
awaited (hiredis, Unix socket, 2026-11-24).
"""

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from idempotency.redis.availability import is_of_a_replica

try:
    from hiredis import pack_command
except ImportError:  # then redis-py does it in Python
    pack_command = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

PENDING_MAX = 8
IDLE_MAX = 16  # kept open while nobody uses them
# other clients route or remember commands (a Cluster's, one with a cache): they are used as they are
_PLAIN_POOLS = (redis.ConnectionPool, redis.BlockingConnectionPool, SentinelConnectionPool)
_NEVER = float("inf")


class PipelinedConnection:
    """Connection of one thread. After one of redis-py's errors it is ready again.

    Use `send_nowait` only where a lost command costs time and never correctness (the marker after a commit).

    Attributes:
        pool: source of its settings.
        known: digests of the scripts that its server has run for it.
        has_set_nx_get: False once its server has refused NX with GET: Redis before 7.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.known: set[str] = set()
        self.has_set_nx_get = True
        self._connection = connection_beside(pool)
        names = ("socket_timeout", "socket_connect_timeout")
        timeouts = {name: getattr(self._connection, name, None) for name in names}
        self._timeouts = {name: _NEVER if own is None else own for name, own in timeouts.items()}
        self._open = False
        self._pending = deque[Callable[[Any], None] | None]()

    def ask(self, *command: Any, seconds: float | None = None) -> Any:
        """Send, wait `seconds` or the client's shorter time-out, and return bytes, numbers or None."""
        is_bounded = seconds is not None and seconds < max(self._timeouts.values())
        try:
            if is_bounded:
                self._wait_at_most(seconds)
            self._settle()
            self._send(None, command)
            return self._read()
        finally:
            if is_bounded:
                self._wait_at_most(_NEVER)

    def send_together(self, *commands: tuple[Any, ...], wait: bool = False) -> None:
        """Send commands in one packet. With `wait`, read their replies and raise their errors."""
        if wait or len(self._pending) + len(commands) > PENDING_MAX:
            self._settle()
        self._send(None, *commands)
        for _ in commands if wait else ():
            self._read()

    def send_nowait(self, *command: Any, then: Callable[[Any], None] | None = None) -> None:
        """Send without waiting for the reply; an error in it is logged.

        Args:
            then: called with the reply, by the next user of the connection; never, if it is lost.
        """
        if len(self._pending) >= PENDING_MAX:
            self._settle()
        self._send(then, command)

    def _wait_at_most(self, seconds: Any) -> None:
        """Bound the time-outs of connecting, greeting and reading; infinite for the client's own."""
        for name, own in self._timeouts.items():
            bound = min(seconds, own)
            setattr(self._connection, name, None if bound == _NEVER else bound)
        if (its_socket := self._connection._sock) is not None:
            its_socket.settimeout(self._connection.socket_timeout)

    def _send(self, then: Callable[[Any], None] | None, *commands: tuple[Any, ...]) -> None:
        # noted first: after any interrupt, no reply is taken for that of another question
        self._pending.extend([then] * len(commands))
        try:
            if not self._open:
                self._connect()
            if pack_command is None:
                packed = self._connection.pack_commands(commands)
            else:  # as redis-py's own does, without its look at each argument for types that we never send
                packed = [b"".join(map(pack_command, commands))]
            # its own PING would read a pending reply, and shift all later ones: see `_check_health`
            self._connection.send_packed_command(packed, check_health=False)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        self._connection.connect()  # sending would connect too, but not by asking a Sentinel
        self._socket = self._connection._sock
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._open = True

    def _read(self) -> Any:
        try:
            answer = self._connection.read_response(disable_decoding=True)
        except ResponseError as error:  # a reply like any other
            self._pending.popleft()
            if is_of_a_replica(error):
                self.close()  # behind the same address there may be a new master by now
            raise
        except BaseException:
            self.close()
            raise
        self._pending.popleft()
        return answer

    def _settle(self) -> None:
        """Read pending replies, and notice that the server closed an idle connection."""
        try:
            while self._pending:
                self._read_pending()
            if self._open and self._may_have_ended():
                self.close()
        except RedisConnectionError:
            self.close()  # pending commands are lost, as they may be; the next command connects again
        if self._open and self._connection.health_check_interval:
            self._check_health()

    def _check_health(self) -> None:
        """Send the PING of redis-py's health check when it is due, while no reply is pending."""
        connection = self._connection
        if time.monotonic() <= connection.next_health_check:
            return
        # an error is a reply too; without any, it is closed by now, and the next command connects again
        with contextlib.suppress(RedisConnectionError, RedisTimeoutError, ResponseError):
            self._send(None, ("PING",))
            self._read()

    def _may_have_ended(self) -> bool:
        """Return whether there is something to read: no reply is due, so it is the end."""
        # redis-py's `can_read` makes a `poll` each time
        return self._connection._sock is not self._socket or bool(self._readable.poll(0))

    def _read_pending(self) -> None:
        then = self._pending[0]
        try:
            answer = self._read()
        except NoScriptError:
            self.known.clear()  # a fresh or flushed server
        except ResponseError as error:
            log.info("Redis refused a command that was not waited for: %s", error)
        else:
            try:
                if then is not None:
                    then(answer)
            except Exception:  # of other work: the reader of this reply has nothing to do with it
                log.exception("A callback for a reply of Redis failed")

    def close(self) -> None:
        """Close; the next command connects again."""
        self._open = False
        self.known.clear()  # the next server may be another one
        self.has_set_nx_get = True
        self._pending.clear()
        self._connection.disconnect()

    def __del__(self) -> None:
        """Close with its thread: redis-py's is in a circle that only garbage collection would end."""
        if hasattr(self, "_connection"):
            self._connection.disconnect()


def connection_beside(pool: Any) -> Any:
    """Make a connection as `pool` does, which never retries: its user knows how long to try."""
    return pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})


def hang_up(connection: Any) -> None:
    """Shut a connection of redis-py (or None) down under the thread that reads it."""
    if (its_socket := getattr(connection, "_sock", None)) is not None:
        connection.retry.update_retries(0)  # a `PubSub` would connect it again
        with contextlib.suppress(OSError):  # it is closed already
            its_socket.shutdown(socket.SHUT_RDWR)


def plain_pool(client: Any) -> Any:
    """Return a client's pool; None if only the client knows how to send."""
    pool: Any = getattr(client, "connection_pool", None)
    return pool if type(pool) in _PLAIN_POOLS and pool.cache is None else None


class ClientConnection:
    """Client that routes commands itself, in place of a `PipelinedConnection`. Always waits."""

    has_set_nx_get = False  # redis-py makes a bool of what SET replies

    def __init__(self, client: Any) -> None:
        self.known: set[str] = set()
        self._client = client

    def ask(self, *command: Any, seconds: float | None = None) -> Any:
        """Send, and return the reply as the client decodes it, however long that takes."""
        return self._client.execute_command(*command)

    def send_together(self, *commands: tuple[Any, ...], wait: bool = True) -> None:
        for command in commands:
            self.ask(*command)

    def send_nowait(self, *command: Any, then: Callable[[Any], None] | None = None) -> None:
        reply = self.ask(*command)
        if then is not None:
            then(reply)


Connection = PipelinedConnection | ClientConnection


class Connections:
    """Connections to where `client` leads, each used for one command at a time, by any thread."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pool = plain_pool(client)
        self._idle = deque[PipelinedConnection]()

    def take(self) -> Connection:
        """Return one that nobody uses. The client itself, if only it knows the way."""
        if self._pool is None:
            return ClientConnection(self._client)
        try:
            return self._idle.pop()
        except IndexError:
            return PipelinedConnection(self._pool)

    def give_back(self, connection: Connection) -> None:
        """Let others use it; beyond IDLE_MAX that nobody uses it is closed."""
        if isinstance(connection, PipelinedConnection):
            if len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
            else:
                connection.close()


class _OfThread(threading.local):
    client: Any = None  # of the last look-up
    connection: PipelinedConnection | None = None


_of_thread = _OfThread()


def connection_of(client: Any) -> Connection:
    """Return this thread's connection for `client`; the client if only it can send."""
    connection = _of_thread.connection
    if connection is None or _of_thread.client is not client:
        if (pool := plain_pool(client)) is None:
            return ClientConnection(client)
        if connection is None or connection.pool is not pool:
            connection = _of_thread.connection = PipelinedConnection(pool)
        _of_thread.client = client
    return connection


def _begin() -> None:
    global _of_thread  # noqa: PLW0603  the parent goes on with its connections
    _of_thread = _OfThread()


os.register_at_fork(after_in_child=_begin)
