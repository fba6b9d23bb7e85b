"""Subscriber of a loop: reads messages for waiting tasks and for topics, in one task."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.client import PubSub

from idempotency.redis.clients import is_cluster
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.mailbox import IDLE_READS, READ_SECONDS, Listener, Mailbox, back_off_seconds
from idempotency.redis.task_connection import plain_pool, whole

log = logging.getLogger(__name__)


class TaskSubscriber:
    """Subscriber for one client. Its `task` runs while it is needed, and is None else."""

    def __init__(self, client: Any) -> None:
        self.mailbox = Mailbox()
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._ready = asyncio.Event()
        self._changing = asyncio.Lock()
        self._pubsub: Any = None

    async def listen(self, seconds: float) -> bool:
        """Start hearing; return False if the server does not confirm that within `seconds`."""
        if self._ready.is_set():
            return True
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run(), name="locks-subscriber")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._ready.wait()
        return self._ready.is_set()

    @contextlib.asynccontextmanager
    async def joined(self, channel: str, listener: Listener) -> AsyncIterator[None]:
        """Have `listener` called while the block runs. A task that is cancelled meanwhile has left."""
        try:
            await whole(self._join(channel, listener))
            yield
        finally:
            await whole(self._leave(channel, listener))

    async def _join(self, channel: str, listener: Listener) -> None:
        async with self._changing:
            if self.mailbox.add(channel, listener):
                await self._change("subscribe", channel)

    async def _leave(self, channel: str, listener: Listener) -> None:
        async with self._changing:
            if self.mailbox.remove(channel, listener):
                await self._change("unsubscribe", channel)

    async def _change(self, command: str, channel: str) -> None:
        with contextlib.suppress(*FAILURES):  # its reader finds that out, and begins again
            if (pubsub := self._pubsub) is not None:  # if not, it subscribes when it begins
                await getattr(pubsub, command)(channel)

    async def _run(self) -> None:
        failures = 0
        while self.mailbox.needed:
            try:
                await self._keep_a_connection()
                failures = 0
            except Exception as error:  # of any kind: waiters must be heard again
                log.info(
                    "The subscriber lost its connection (%s); every waiter looks again.", type(error).__name__
                )
                self.mailbox.mail.ring_all()
                await asyncio.sleep(back_off_seconds(failures))
                failures += 1
        self.task = None  # in the same step of the loop in which nobody waits: no newcomer is lost

    async def _keep_a_connection(self) -> None:
        if is_cluster(self._client):
            await self._client.initialize()  # it knows no node before its first command
        pubsub = _pubsub_of(self._client)
        try:
            async with self._changing:  # it connects in here: two that subscribe at once would connect it twice
                self._pubsub = pubsub
                await pubsub.subscribe(*self.mailbox.channels)
            idle = 0
            while idle < IDLE_READS:
                if self.mailbox.take(await pubsub.get_message(timeout=READ_SECONDS)):
                    self._ready.set()
                    self.mailbox.confirmed = True
                idle = 0 if self.mailbox.needed else idle + 1
        finally:
            self._pubsub = None
            self.mailbox.confirmed = False
            self._ready.clear()
            with contextlib.suppress(*FAILURES):
                await pubsub.aclose()


def _pubsub_of(client: Any) -> Any:
    """Make a subscriber beside the client's pool, which may have no second connection to give."""
    pool = plain_pool(client)
    if pool is None:
        return client.pubsub()
    settings = pool.connection_kwargs | {"encoding": "utf-8"}  # as commands are packed
    return PubSub(ConnectionPool(connection_class=pool.connection_class, **settings))
