"""`Topic`: notify all processes of a change. A process has one connection for all.

A message is a hint and not a record: it may be lost while a connection is away, or come twice where a client
repeats a command. A listener that may have missed some gets None, and looks for itself. So is its first message:
from then on it hears everything.
"""

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

from idempotency.arguments import text, waiting
from idempotency.locks.engine.hub import Resource, script
from idempotency.locks.engine.steps import Ask, Listen, SendNowait, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.redis.mailbox import READY_SECONDS

_PUBLISH = script("publish")
KEPT_MAX = 1000  # messages that a slow listener may be behind; then it gets None, for it missed some


class Publishing(Resource):
    """Source of both faces; see `Resource` for its arguments."""

    _kind = "topic"

    @property
    def channel(self) -> str:
        """Channel of its messages, for the current tenant."""
        return self._key

    @operation
    def tell(self, message: str) -> Steps[None]:
        """Send `message` to every listener. Call it after the commit, or they look too early."""
        yield Ask(_PUBLISH, [self.channel], [text("message", message)])

    @operation
    def hint(self, message: str) -> Steps[None]:
        """Send as `tell` does, but do not wait for the reply. A message may be lost unnoticed."""
        yield SendNowait(_PUBLISH, [self.channel], [text("message", message)])

    @operation
    def _connected(self) -> Steps[bool]:
        return (yield Listen(READY_SECONDS))  # type: ignore[no-any-return]


class Topic(OnThreads, Publishing):
    """Topic for threads and processes; see `Resource` for its arguments."""

    @contextlib.contextmanager
    def listen(self, messages: "Messages | None" = None) -> Iterator["Messages"]:
        """Receive messages from now on, into `messages` if they are given."""
        messages = messages or Messages()
        with self.hub().subscriber.joined(self.channel, messages.put):
            self._connected()
            yield messages


class Messages:
    """Messages that a thread has received and not yet taken."""

    def __init__(self) -> None:
        self._queue: Any = queue.SimpleQueue()

    def put(self, message: str | None) -> None:
        """Add a message; called by the subscriber."""
        if (behind := self._queue.qsize()) <= KEPT_MAX:
            self._queue.put_nowait(message if behind < KEPT_MAX else None)

    def take(self, *, wait_seconds: float | None) -> str | None:
        """Return the next message; None if some may have been missed. TimeoutError if none came."""
        try:
            return self._queue.get(timeout=waiting(wait_seconds))  # type: ignore[no-any-return]
        except queue.Empty:
            raise TimeoutError from None


class AsyncTopic(OnTasks, Publishing):
    """`Topic` for asyncio."""

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator["AsyncMessages"]:
        """Receive messages from now on."""
        messages = AsyncMessages()
        async with self.hub().subscriber.joined(self.channel, messages.put):
            await self._connected()
            yield messages


class AsyncMessages(Messages):
    """Messages that a task has received and not yet taken."""

    def __init__(self) -> None:
        self._queue: Any = asyncio.Queue()

    async def take(self, *, wait_seconds: float | None) -> str | None:  # type: ignore[override]
        """Return the next message, as `Messages.take` does."""
        async with asyncio.timeout(waiting(wait_seconds)):
            return await self._queue.get()  # type: ignore[no-any-return]
