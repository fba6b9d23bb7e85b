"""Face of asyncio: an operation is awaited. A loop has one subscriber and one watchdog task at a server."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from redis.asyncio import ConnectionPool
from redis.asyncio.client import PubSub

from idempotency.conf import config
from idempotency.locks.engine import holder
from idempotency.locks.engine.blocking import answer_beside
from idempotency.locks.engine.hub import Hub, is_cluster, lock_error, refuse_no_redis
from idempotency.locks.engine.steps import (
    Ask,
    Finish,
    Listen,
    On,
    SendNowait,
    Step,
    Steps,
    Tasked,
    Wait,
    perform_async,
)
from idempotency.redis.async_clients import async_client, close_client, drop_closed
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.mailbox import BACK_OFF_SECONDS, IDLE_READS, READ_SECONDS
from idempotency.redis.task_connection import Cancelled, connection_of, plain_pool, whole

log = logging.getLogger(__name__)

T = TypeVar("T")


class TaskBell:
    """`Bell` for a task; any thread may ring it."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        """Wake the waiter, or the next one to wait."""
        if asyncio._get_running_loop() is self._loop:
            self._event.set()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait until it rings (True) or `seconds` are over (False)."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class TaskHub(Hub):
    """Hub whose subscriber and watchdog are tasks of one loop, started when they are needed."""

    def __init__(self, client: Any) -> None:
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._connection = connection_of(client)
        self._reader: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._pubsub: Any = None
        self._topics = asyncio.Lock()
        self._stirred = asyncio.Event()
        super().__init__(client, cluster=is_cluster(client))

    def bell(self) -> TaskBell:
        return TaskBell()

    def serves_here(self) -> bool:
        """Return whether it is of the running loop and process, and not ended."""
        return asyncio._get_running_loop() is self._loop and self.process == holder.process()

    async def answer(self, step: Step) -> Any:
        """Perform one step."""
        match step:
            case Ask():
                return await self._ask(step)
            case Wait(bell, seconds):
                return await bell.wait(seconds)
            case Listen(seconds):
                return self._ready.is_set() or await self._listen(seconds)
            case Finish(steps):
                return await self._finish(steps)
            case On(face, steps):
                return await face.run(steps)
            case _:
                return await answer_beside(step)

    async def _finish(self, steps: Steps[T]) -> T:
        """Perform `steps` to their end, and only then raise a cancellation."""
        cancelled: Cancelled = []
        try:
            return await perform_async(steps, partial(self._answer_in_any_case, cancelled))
        finally:
            if cancelled:
                raise cancelled[0]

    async def _answer_in_any_case(self, cancelled: Cancelled, step: Step) -> Any:
        if isinstance(step, On):
            hub = step.face.hub()
            return await perform_async(step.steps, partial(hub._answer_in_any_case, cancelled))
        while True:
            try:
                return await (self._ask(step, cancelled) if isinstance(step, Ask) else self.answer(step))
            except asyncio.CancelledError as error:
                cancelled.append(error)  # and again: nothing was sent yet, or it is a pause

    async def _ask(self, step: Ask, cancelled: Cancelled | None = None) -> Any:
        ask = partial(self._connection.ask, seconds=step.seconds, cancelled=cancelled)
        try:
            reply = await step.script.run_async(ask, step.keys, step.arguments)
        except FAILURES as error:
            if known := lock_error(error):
                raise known from error
            raise
        if isinstance(step, SendNowait) and step.then is not None:
            step.then(reply)
        return reply

    async def _listen(self, seconds: float) -> bool:
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(), name="locks-subscriber")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._ready.wait()
        return self._ready.is_set()

    async def join(self, channel: str, listener: Callable[[str | None], None]) -> None:
        """Call `listener` with each message of `channel`, and with None when some may be missed.

        A task that is cancelled meanwhile has left.
        """
        try:
            await whole(self._join(channel, listener))
        except BaseException:
            await self.leave(channel, listener)
            raise

    async def leave(self, channel: str, listener: Callable[[str | None], None]) -> None:
        """End the calls, even if the task is cancelled meanwhile."""
        await whole(self._leave(channel, listener))

    async def _join(self, channel: str, listener: Callable[[str | None], None]) -> None:
        async with self._topics:
            if self.mailbox.add(channel, listener):
                await self._change("subscribe", channel)
            else:
                listener(None)

    async def _leave(self, channel: str, listener: Callable[[str | None], None]) -> None:
        async with self._topics:
            joined = self.mailbox.has(channel, listener)  # if not, `_join` was ended before that
            if joined and self.mailbox.remove(channel, listener):
                await self._change("unsubscribe", channel)

    async def _change(self, command: str, channel: str) -> None:
        with contextlib.suppress(*FAILURES):  # its reader finds that out, and begins again
            if (pubsub := self._pubsub) is not None:  # if not, it subscribes when it begins
                await getattr(pubsub, command)(channel)

    async def _read(self) -> None:
        failures = 0
        while self.mailbox.needed:
            try:
                await self._read_messages()
                failures = 0
            except Exception as error:  # of any kind: waiters must be heard again
                log.info(
                    "The subscriber lost its connection (%s); every waiter looks again.", type(error).__name__
                )
                self.mail.ring_all()
                await asyncio.sleep(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)])
                failures += 1
        self._reader = None  # in the same step of the loop in which nobody waits: no newcomer is lost

    async def _read_messages(self) -> None:
        if self.cluster:
            await self.client.initialize()  # it knows no node before its first command
        pubsub = _pubsub_of(self.client)
        try:
            async with self._topics:  # it connects in here: two that subscribe at once would connect it twice
                self._pubsub = pubsub
                await pubsub.subscribe(*self.mailbox.channels)
            idle = 0
            while idle < IDLE_READS:
                message = await pubsub.get_message(timeout=READ_SECONDS)
                self.mailbox.take(message)
                if message is not None and message["type"] == "subscribe":
                    self._ready.set()
                idle = 0 if self.mailbox.needed else idle + 1
        finally:
            self._pubsub = None
            self._ready.clear()
            with contextlib.suppress(*FAILURES):
                await pubsub.aclose()

    def stir(self) -> None:
        self._stirred.set()
        if self._watchdog is None or self._watchdog.done():
            self._watchdog = asyncio.create_task(self._watch(), name="locks-watchdog")

    async def _watch(self) -> None:
        while True:
            self._stirred.clear()
            due_at = self.holds.next_due()
            if due_at == float("inf"):
                self._watchdog = None
                return
            try:
                async with asyncio.timeout(max(0.0, due_at - time.monotonic())):
                    await self._stirred.wait()
            except TimeoutError:
                await perform_async(self.renew(log.warning), self.answer)

    async def end(self) -> None:
        """End messages, renewals and the connection."""
        self._loop = None
        tasks = [task for task in (self._reader, self._watchdog) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.aclose()


def _pubsub_of(client: Any) -> Any:
    """Make a subscriber beside the client's pool, which may have no second connection to give."""
    pool = plain_pool(client)
    if pool is None:
        return client.pubsub()
    beside = ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
    return PubSub(beside)


_hubs: dict[asyncio.AbstractEventLoop, dict[int, TaskHub]] = {}


def hub_of(client: Any) -> TaskHub:
    """Return the one hub of the running loop for `client`."""
    loop = asyncio.get_running_loop()
    hubs = _hubs.get(loop)
    if hubs is None:
        drop_closed(_hubs)
        hubs = _hubs[loop] = {}
    hub = hubs.get(id(client))
    if hub is None or hub.process != holder.process():
        hub = hubs[id(client)] = TaskHub(client)
    return hub


async def close() -> None:
    """End the running loop's subscribers and watchdogs, and close its client's connections.

    Call it before the loop ends. Holds are renewed no more. A loop that ends without this is forgotten when a
    later one asks for a lock.
    """
    for hub in _hubs.pop(asyncio.get_running_loop(), {}).values():
        await hub.end()
    await close_client()


class OnTasks(Tasked):
    """Base of the lock classes of asyncio, beside their protocol."""

    client: Any = None
    _cached: TaskHub | None = None

    def hub(self) -> TaskHub:
        """Return the hub that performs its steps; another one in another loop, or after `close` or a fork."""
        if self._cached is None or not self._cached.serves_here():
            if self.client is None and config().redis_async_client is None:
                refuse_no_redis()
            self._cached = hub_of(async_client() if self.client is None else self.client)
        return self._cached

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self.hub().answer)
