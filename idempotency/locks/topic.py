"""`Topic`: tell all processes that something has changed. One subscriber connection a process for all its topics.

A message is a hint and not a record: it may be lost while a connection is away, or come twice where a client
repeats a command. So a listener that may have missed some is told that (None), and looks for himself. The first
that it hears is None: from then on it hears everything.
"""

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

from idempotency.locks.engine.hub import Hub, script, tagged
from idempotency.locks.engine.steps import Ask, Listen, Steps, Tell, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.redis.mailbox import READY_SECONDS

_TELL = script("tell")
KEPT_MAX = 1000  # messages that a slow listener may be behind; then it is told that it missed some


class Telling:
    """The source of what both faces share.

    Args:
        name: any text; the same name is the same topic everywhere.
        client: as of `Lock`.
    """

    def __init__(self, name: str, *, client: Any = None) -> None:
        self.name = name
        self.client = client
        tagged("topic", name)  # refuses a bad name here

    @property
    def channel(self) -> str:
        """Where it is heard here and now."""
        return tagged("topic", self.name)

    def hub(self) -> Hub:
        """Where it is heard."""
        raise NotImplementedError

    @operation
    def tell(self, message: str) -> Steps[None]:
        """Have every listener hear `message`. After the commit of what it is about, or they look too early.

        Raises:
            LockUnavailable: Redis did not answer.
        """
        yield Ask(_TELL, [self.channel], [message])

    @operation
    def hint(self, message: str) -> Steps[None]:
        """As `tell`, for who has no time: a thread waits for no answer, and a message may be lost unnoticed.

        Raises:
            LockUnavailable: Redis could not be told.
        """
        yield Tell(_TELL, [self.channel], [message])

    @operation
    def _connected(self) -> Steps[bool]:
        return (yield Listen(READY_SECONDS))  # type: ignore[no-any-return]


class Topic(OnThreads, Telling):
    """A topic for threads and processes; see `Telling` for its arguments."""

    @contextlib.contextmanager
    def listen(self) -> Iterator["Messages"]:
        """Hear what is told from now on."""
        messages = Messages()
        with self.hub().subscriber.joined(self.channel, messages.put):
            self._connected()
            yield messages


class Messages:
    """What a thread has heard and not yet taken."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def put(self, message: str | None) -> None:
        """The subscriber's side."""
        if self._queue.qsize() < KEPT_MAX:
            self._queue.put(message)
        elif self._queue.qsize() == KEPT_MAX:
            self._queue.put(None)

    def take(self, *, wait_seconds: float) -> str | None:
        """The next message; None if some may have been missed.

        Raises:
            TimeoutError: none came within `wait_seconds`.
        """
        try:
            return self._queue.get(timeout=wait_seconds)
        except queue.Empty:
            raise TimeoutError from None


class AsyncTopic(OnTasks, Telling):
    """`Topic` for asyncio."""

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator["AsyncMessages"]:
        """Hear what is told from now on."""
        hub, channel, messages = self.hub(), self.channel, AsyncMessages()
        await hub.join(channel, messages.put)
        try:
            await self._connected()
            yield messages
        finally:
            await hub.leave(channel, messages.put)


class AsyncMessages:
    """What a task has heard and not yet taken."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, message: str | None) -> None:
        """The subscriber's side."""
        if self._queue.qsize() < KEPT_MAX:
            self._queue.put_nowait(message)
        elif self._queue.qsize() == KEPT_MAX:
            self._queue.put_nowait(None)

    async def take(self, *, wait_seconds: float) -> str | None:
        """The next message; None if some may have been missed.

        Raises:
            TimeoutError: none came within `wait_seconds`.
        """
        async with asyncio.timeout(wait_seconds):
            return await self._queue.get()
