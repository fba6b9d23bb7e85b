"""A connection to Redis, used by one thread at a time, on which a command may be told and its answer not awaited.

A pool hands a connection out for one command and its answer. The last command of a request wants none: the answer
of the request is committed, and nothing is done about a marker that could not be written. So the thread keeps one
connection; what it told there is answered before its next question, in the order in which both were sent.

It is made as the pool makes its own ones, beside them: it never takes one away from the project's cache.
"""

import contextlib
import logging
import os
import re
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
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

pack_command: Any
try:
    from hiredis import pack_command
except ImportError:  # then redis-py does it in Python
    pack_command = None

log = logging.getLogger(__name__)

PENDING_MAX = 8

# other clients, a Cluster's or one with a cache of its own, route or remember commands: they are used as they are
_PLAIN_POOLS = (redis.ConnectionPool, redis.BlockingConnectionPool, SentinelConnectionPool)

# before Redis 7 what a command inside a script is refused with stands at the end of a sentence about the script
_READ_ONLY_IN_A_SCRIPT = re.compile(r"^Error running script .*?: -READONLY ")

_of_thread = threading.local()


class PipelinedConnection:
    """See the module. Raises what redis-py raises: `RedisError`, which leaves the line ready for the next command.

    Attributes:
        pool: whose settings it has.
        known: digests of the scripts that its server has run for it.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.known: set[str] = set()
        self._process = os.getpid()
        self._connection = connection_beside(pool)
        self._open = False
        self._pending = deque[Callable[[Any], None]]()
        self._socket: Any = None
        self._readable = select.poll()

    def belongs_to(self, pool: Any) -> bool:
        """Whether it still leads where `pool` does, and was not brought along by a fork."""
        return self.pool is pool and self._process == os.getpid()

    def ask(self, *command: Any) -> Any:
        """Send, and wait for the answer: bytes, numbers or None."""
        self._settle()
        self._send(command, _nobody)
        return self._read()

    def send_nowait(self, *command: Any, then: Callable[[Any], None] | None = None) -> None:
        """Send, and do not wait. An error that comes back later only says that it was not done.

        Args:
            then: called with the answer, by whoever uses the line when it is read; never, if it is lost.
        """
        if len(self._pending) >= PENDING_MAX:
            self._settle()
        self._send(command, then or _nobody)

    def _send(self, command: tuple[Any, ...], then: Callable[[Any], None]) -> None:
        # noted first: whatever interrupts us, no answer is ever taken for that of another question
        self._pending.append(then)
        try:
            if not self._open:
                self._connect()
            # redis-py's own does the same, and looks at each argument first for types that we never send
            packed = self._connection.pack_command(*command) if pack_command is None else [pack_command(command)]
            # its PING would read the reply that is owed, and ours would go to the next question: `_check_health`
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
        except ResponseError as error:  # an answer like any other, but for one
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
        """Read the answers that are owed; and see whether the server closed the line while nobody used it."""
        try:
            while self._pending:
                self._read_pending()
            if self._open and self._may_have_ended():
                self.close()
        except RedisConnectionError:
            self.close()  # what was told is lost, which a marker may be; the next command opens the line again
        if self._open:
            self._check_health()

    def _check_health(self) -> None:
        """Send the PING of redis-py's health check when it is due, while no reply is owed."""
        connection = self._connection
        if not connection.health_check_interval or time.monotonic() <= connection.next_health_check:
            return
        # an error is a reply too; where there is none, the line is closed now, and the next command opens it
        with contextlib.suppress(RedisConnectionError, RedisTimeoutError, ResponseError):
            self._send(("PING",), _nobody)
            self._read()

    def _may_have_ended(self) -> bool:
        """Whether there is something to be read; nothing is due, so it is the end."""
        # asked of a `poll` that is kept: redis-py's `can_read` makes one each time
        return self._connection._sock is not self._socket or bool(self._readable.poll(0))

    def _read_pending(self) -> None:
        then = self._pending[0]
        try:
            answer = self._read()
        except NoScriptError:
            self.known.clear()  # a fresh or flushed server
        except ResponseError as error:
            log.info("Redis did not do what it was told: %s", error)
        else:
            try:
                then(answer)
            except Exception:  # of another one's work: who happens to read it has nothing to do with that
                log.exception("What was to be done with an answer of Redis failed")

    def close(self) -> None:
        """Hang up; the next command opens it again."""
        self._open = False
        self.known.clear()  # it may be another server that answers next
        self._pending.clear()
        self._connection.disconnect()


def connection_beside(pool: Any) -> Any:
    """A connection as `pool` makes them, which never retries: who asks on it knows how long to try."""
    return pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})


def hang_up(connection: Any) -> None:
    """Have the thread that reads this connection of redis-py (or None) find it closed, from another thread."""
    if (its_socket := getattr(connection, "_sock", None)) is not None:
        connection.retry.update_retries(0)  # a `PubSub` would connect it again
        with contextlib.suppress(OSError):  # it is closed already
            its_socket.shutdown(socket.SHUT_RDWR)


def _nobody(answer: Any) -> None:
    """Waits for it."""


def is_of_a_replica(error: ResponseError) -> bool:
    """Whether a server refused it because it is no master, or not any more."""
    return isinstance(error, ReadOnlyError) or _READ_ONLY_IN_A_SCRIPT.match(str(error)) is not None


def plain_pool(client: Any) -> Any:
    """The pool of a client that sends commands as they are; None where only the client itself knows the way."""
    pool: Any = getattr(client, "connection_pool", None)
    return pool if type(pool) in _PLAIN_POOLS and pool.cache is None else None


class ClientConnection:
    """A client that routes or remembers commands itself, used like a `PipelinedConnection`; it always waits."""

    def __init__(self, client: Any) -> None:
        self.known: set[str] = set()
        self._client = client

    def ask(self, *command: Any) -> Any:
        """Send, and return the reply as the client decodes it."""
        return self._client.execute_command(*command)

    def send_nowait(self, *command: Any, then: Callable[[Any], None] | None = None) -> None:
        """Send, wait, and call `then` with the reply."""
        reply = self.ask(*command)
        if then is not None:
            then(reply)


Connection = PipelinedConnection | ClientConnection


def connection_of(client: Any) -> Connection:
    """Return this thread's connection to where `client` leads; the client itself, if only it knows the way."""
    pool = plain_pool(client)
    if pool is None:
        return ClientConnection(client)
    connection: PipelinedConnection | None = getattr(_of_thread, "connection", None)
    if connection is None or not connection.belongs_to(pool):
        connection = _of_thread.connection = PipelinedConnection(pool)
    return connection
