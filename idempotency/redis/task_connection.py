"""A loop's connection to Redis, whose commands are pipelined.

A pool of `redis.asyncio` takes a connection, two streams' turns of the loop and a timer for each command. Here a
command is one write, and its reply wakes the task that waits for it. A task is cancelled only when the reply is
there, so that what undoes a command does not overtake it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from redis._parsers.base import BaseParser
from redis.asyncio import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency.redis.availability import is_of_a_replica

hiredis: Any
try:
    import hiredis
except ImportError:  # then redis-py's own connections are used
    hiredis = None

# other clients, such as a Cluster's, find their way themselves
_PLAIN_POOLS = (ConnectionPool, BlockingConnectionPool, SentinelConnectionPool)
Cancelled = list[BaseException]
SILENCE_SECONDS = 5.0  # of a server, where the client sets no `socket_timeout`: a script takes microseconds

_MORE = object()

T = TypeVar("T")


class Reply(asyncio.Future[Any]):
    """Reply to a command. A cancellation of its task waits for it."""

    def cancel(self, msg: Any = None) -> bool:
        """Refuse; asyncio then cancels the task when it would go on."""
        return False

    def fail(self, error: type[Exception], text: str) -> None:
        if not self.done():
            self.set_exception(error(text))


class Replies(asyncio.Protocol):
    """Replies in the order of the commands. `ended`: closed, silent, or a replica's."""

    def __init__(self, transport: asyncio.Transport, *, silence_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._silence_seconds = silence_seconds
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_MORE
        )
        self._pending: deque[tuple[Reply, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.heard_at = self._loop.time()
        transport.set_protocol(self)

    def send(self, command: tuple[Any, ...], seconds: float | None = None) -> Reply:
        """Send a command, and return its reply or error to be, a time-out after `seconds` if given."""
        reply, now = Reply(loop=self._loop), self._loop.time()
        self._transport.write(hiredis.pack_command(command))  # first: what cannot be packed has no reply
        self._pending.append((reply, now))
        if seconds is not None:
            timer = self._loop.call_later(seconds, reply.fail, RedisTimeoutError, "The server is late.")
            reply.add_done_callback(lambda _: timer.cancel())
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
            if waiting.done():  # its time was over
                continue
            if not isinstance(reply, Exception):
                waiting.set_result(reply)
                continue
            waiting.set_exception(reply)
            if isinstance(reply, ResponseError) and is_of_a_replica(reply):
                self.end(RedisConnectionError, "The server is no master any more.")

    def connection_lost(self, error: Exception | None) -> None:
        self.end(RedisConnectionError, "The server closed the connection.")

    def end(self, error: type[Exception], text: str) -> None:
        """Close at once, and fail the commands that wait."""
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._pending.popleft()[0].fail(error, text)
        self._transport.abort()


class TaskConnection:
    """Connection beside those of `pool`, shared by the tasks of one loop.

    redis-py makes it, with all that its settings ask for, and it never retries: its user knows how long to try.
    """

    def __init__(self, pool: Any) -> None:
        self._connection = pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})
        self._connecting = asyncio.Lock()
        self._replies: Replies | None = None

    async def ask(self, *command: Any, seconds: float | None = None, cancelled: Cancelled | None = None) -> Any:
        """Send and return the reply; send once more if the connection ended meanwhile.

        Args:
            seconds: after which it counts as unanswered; None: when the server is silent for too long.
            cancelled: takes a cancellation that came while the reply was awaited; None raises it then.
        """
        replies = self._replies
        if replies is not None and not replies.ended:
            try:
                if self._connection.health_check_interval:
                    await self._check_health(replies)
                return await result_of(replies.send(command, seconds), cancelled)
            except RedisConnectionError:
                pass  # not by `suppress`, which takes longer
        async with asyncio.timeout(seconds):
            replies = await self._connected()
        return await result_of(replies.send(command, seconds), cancelled)

    async def _check_health(self, replies: Replies) -> None:
        silent_for = asyncio.get_running_loop().time() - replies.heard_at
        if silent_for > self._connection.health_check_interval:
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

    async def ask(self, *command: Any, seconds: float | None = None, cancelled: Cancelled | None = None) -> Any:
        """Send, and return the reply decoded by the client. Arguments: `TaskConnection.ask`."""
        asking = asyncio.ensure_future(self._ask(command, seconds))
        return await result_of(asking, cancelled, waiting=whole(asking))

    async def _ask(self, command: tuple[Any, ...], seconds: float | None) -> Any:
        async with asyncio.timeout(seconds):
            return await self._client.execute_command(*command)

    async def aclose(self) -> None:
        """Leave the client open: it is its maker's."""


async def result_of(
    reply: asyncio.Future[Any], cancelled: Cancelled | None, *, waiting: Awaitable[Any] | None = None
) -> Any:
    """Wait for the end of `reply`, or by `waiting`: a cancellation interrupts either only then."""
    try:
        return await (reply if waiting is None else waiting)
    except asyncio.CancelledError as error:
        if cancelled is None:
            raise
        cancelled.append(error)
        return reply.result()


def plain_pool(client: Any) -> Any:
    """Return a client's pool; None if only the client knows how to send."""
    pool: Any = getattr(client, "connection_pool", None)
    return pool if type(pool) in _PLAIN_POOLS else None


def connection_of(client: Any) -> TaskConnection | TaskClient:
    """Make a connection to where `client` leads, for the running loop."""
    pool = plain_pool(client)
    return TaskClient(client) if pool is None or hiredis is None else TaskConnection(pool)


async def whole(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Run `work` to its end, and only then raise a cancellation: nothing overtakes a command."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: the cancellation is raised instead
        raise
