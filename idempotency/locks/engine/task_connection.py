"""A loop's connection to Redis, whose commands are pipelined.

A pool of `redis.asyncio` takes a connection, two streams' turns of the loop and a timer for each command. Here a
command is one write, and its reply wakes the task that waits for it. Replies come in the order of the commands, so
what a cancelled task sent is done before what undoes it.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any

from redis._parsers.base import BaseParser
from redis.asyncio import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency.redis.connection import is_of_a_replica

hiredis: Any
try:
    import hiredis
except ImportError:  # then redis-py's own connections are used
    hiredis = None

# other clients, such as a Cluster's, find their way themselves
_PLAIN_POOLS = (ConnectionPool, BlockingConnectionPool, SentinelConnectionPool)
SILENCE_SECONDS = 5.0  # of a server, where the client sets no `socket_timeout`: a script takes microseconds

_MORE = object()


class Replies(asyncio.Protocol):
    """Replies of one transport, given to those who wait in the order of their commands.

    Attributes:
        ended: the server closed it, was silent for too long, or is no master any more.
        heard_at: loop's time of the last reply.
    """

    def __init__(self, transport: asyncio.Transport, *, silence_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._silence_seconds = silence_seconds
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_MORE
        )
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.heard_at = self._loop.time()
        transport.set_protocol(self)

    def send(self, command: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Send a command, and return what will be its reply or error."""
        reply, now = self._loop.create_future(), self._loop.time()
        self._pending.append((reply, now))
        self._transport.write(hiredis.pack_command(command))
        if self._timer is None:  # one for all commands: it looks again for the oldest
            self._timer = self._loop.call_at(now + self._silence_seconds, self._look)
        return reply

    def _look(self) -> None:
        self._timer = None
        if not self._pending:
            return
        until = self._pending[0][1] + self._silence_seconds
        if until > self._loop.time():
            self._timer = self._loop.call_at(until, self._look)
        else:
            self.end(RedisTimeoutError, "The server is silent.")

    def data_received(self, data: bytes) -> None:
        """Give each whole reply to its command; a push of the server belongs to none."""
        self.heard_at = self._loop.time()
        self._reader.feed(data)
        while not self.ended and (reply := self._reader.gets()) is not _MORE:
            if isinstance(reply, hiredis.PushNotification):
                continue
            waiting, _ = self._pending.popleft()
            if waiting.done():  # its task was cancelled
                continue
            if not isinstance(reply, Exception):
                waiting.set_result(reply)
                continue
            waiting.set_exception(reply)
            if isinstance(reply, ResponseError) and is_of_a_replica(reply):
                self.end(RedisConnectionError, "The server is no master any more.")

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the commands that wait."""
        self.end(RedisConnectionError, "The server closed the connection.")

    def end(self, error: type[Exception], text: str) -> None:
        """Close at once, and fail the commands that wait."""
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            waiting, _ = self._pending.popleft()
            if not waiting.done():
                waiting.set_exception(error(text))
        self._transport.abort()


class TaskConnection:
    """Connection beside those of `pool`, used by any number of tasks of one loop. Raises redis-py's errors.

    redis-py makes it, with all that its settings ask for, and it never retries: its user knows how long to try.
    """

    def __init__(self, pool: Any) -> None:
        self._connection = pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})
        self._connecting = asyncio.Lock()
        self._replies: Replies | None = None

    async def ask(self, *command: Any) -> Any:
        """Send, wait, and return the reply. A command whose connection ended meanwhile is sent once more."""
        replies = self._replies
        if replies is not None and not replies.ended:
            with contextlib.suppress(RedisConnectionError):
                await self._check_health(replies)
                return await replies.send(command)
        return await (await self._connected()).send(command)

    async def _check_health(self, replies: Replies) -> None:
        """Send the PING of redis-py's health check when it is due."""
        seconds = self._connection.health_check_interval
        if seconds and asyncio.get_running_loop().time() - replies.heard_at > seconds:
            try:
                await replies.send(("PING",))
            except RedisTimeoutError as error:
                raise RedisConnectionError from error

    async def _connected(self) -> Replies:
        async with self._connecting:
            if self._replies is None or self._replies.ended:
                await self._connection.disconnect(nowait=True)
                try:
                    await self._connection.connect()
                    seconds = self._connection.socket_timeout or SILENCE_SECONDS
                    self._replies = Replies(self._connection._writer.transport, silence_seconds=seconds)
                except BaseException:  # a cancellation may leave it half open
                    await self._connection.disconnect(nowait=True)
                    raise
            return self._replies

    async def aclose(self) -> None:
        """Close; the next command connects again."""
        if self._replies is not None:
            self._replies.end(RedisConnectionError, "The connection was closed.")
        await self._connection.disconnect(nowait=True)


class TaskClient:
    """Client that routes commands itself, used like a `TaskConnection`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def ask(self, *command: Any) -> Any:
        """Send, and return the reply as the client decodes it."""
        return await self._client.execute_command(*command)

    async def aclose(self) -> None:
        """Leave the client open: it is its maker's."""


def plain_pool(client: Any) -> Any:
    """Return the pool of a client that sends commands as they are. None if only the client knows the way."""
    pool: Any = getattr(client, "connection_pool", None)
    return pool if type(pool) in _PLAIN_POOLS else None


def connection_of(client: Any) -> TaskConnection | TaskClient:
    """Make a connection to where `client` leads, for the running loop."""
    pool = plain_pool(client)
    return TaskClient(client) if pool is None or hiredis is None else TaskConnection(pool)
