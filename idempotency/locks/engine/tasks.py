"""Face of asyncio: operations are awaited. A loop has a subscriber and a watchdog a server."""

import asyncio
import logging
import time
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from idempotency.conf import config
from idempotency.locks.engine import holder
from idempotency.locks.engine.hub import Hub, lock_error, refuse_no_redis
from idempotency.locks.engine.steps import (
    Ask,
    Finish,
    Listen,
    On,
    SendNowait,
    Step,
    Steps,
    Tasked,
    answer_beside,
    perform_async,
)
from idempotency.observability.background import NEVER
from idempotency.redis.async_clients import async_client, close_client, drop_closed
from idempotency.redis.clients import refuse_other_client
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.mailbox import TaskBell
from idempotency.redis.task_connection import Cancelled, connection_of, result_of, whole
from idempotency.redis.task_subscriber import TaskSubscriber

log = logging.getLogger(__name__)

T = TypeVar("T")


class TaskHub(Hub):
    """Hub whose subscriber and watchdog are tasks of one loop, started when they are needed."""

    bell = TaskBell

    def __init__(self, client: Any) -> None:
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._connection = connection_of(client)
        self.subscriber = TaskSubscriber(client)
        self._watchdog: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        super().__init__(client, self.subscriber.mailbox)

    def serves_here(self) -> bool:
        """Return whether it is of the running loop and process, and not ended."""
        return asyncio._get_running_loop() is self._loop and self.process == holder.process

    async def answer(self, step: Step) -> Any:
        match step:
            case Ask():
                return await self._ask(step)
            case Listen(seconds):
                return await self.subscriber.listen(seconds)
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
        if isinstance(step, On | Finish):
            hub = step.face.hub() if isinstance(step, On) else self
            return await perform_async(step.steps, partial(hub._answer_in_any_case, cancelled))
        try:
            return await (self._ask(step, cancelled) if isinstance(step, Ask) else self.answer(step))
        except asyncio.CancelledError as error:
            cancelled.append(error)
        # and again, for nothing was sent yet; in a task of its own: anyio cancels ours at each turn of the loop
        again = asyncio.ensure_future(self._answer_in_any_case([], step))
        return await result_of(again, cancelled, waiting=whole(again))

    async def _ask(self, step: Ask, cancelled: Cancelled | None = None) -> Any:
        ask = partial(self._connection.ask, seconds=step.seconds, cancelled=cancelled)
        try:
            reply = await step.script.run_async(ask, step.keys, step.arguments)
        except FAILURES as error:
            raise lock_error(error) from error
        if isinstance(step, SendNowait) and step.then is not None:
            step.then(reply)
        return reply

    def stir(self) -> None:
        self._stirred.set()
        if self._watchdog is None or self._watchdog.done():
            self._watchdog = asyncio.create_task(self._watch(), name="locks-watchdog")

    async def _watch(self) -> None:
        while (due_at := self.holds.next_due()) < NEVER:
            self._stirred.clear()
            try:
                async with asyncio.timeout(max(0.0, due_at - time.monotonic())):
                    await self._stirred.wait()
            except TimeoutError:
                await perform_async(self.renew(log.warning), self.answer)
        self._watchdog = None

    async def end(self) -> None:
        self._loop = None
        tasks = [task for task in (self.subscriber.task, self._watchdog) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.aclose()


_ATTRIBUTE = "_payonce_hubs"
_hubs: "dict[asyncio.AbstractEventLoop, WeakSet[TaskHub]]" = {}


def hub_of(client: Any) -> TaskHub:
    """Return the running loop's hub for `client`, an attribute as in `subscriber_of`."""
    refuse_other_client(client, awaited=True)
    loop, of_client = asyncio.get_running_loop(), vars(client).setdefault(_ATTRIBUTE, {})
    hub = of_client.get(loop)
    if hub is None or not hub.serves_here():
        drop_closed(of_client)
        drop_closed(_hubs)
        hub = of_client[loop] = TaskHub(client)
        _hubs.setdefault(loop, WeakSet()).add(hub)
    return hub  # type: ignore[no-any-return]


async def close() -> None:
    """End the running loop's subscribers and watchdogs, and close its client's connections.

    Call it before the loop ends. Holds are renewed no more. A loop that ends without this is forgotten when a
    later one asks for a lock.
    """
    for hub in list(_hubs.pop(asyncio.get_running_loop(), ())):
        await hub.end()
    await close_client()


class OnTasks(Tasked):
    client: Any = None
    _cached: TaskHub | None = None

    def hub(self) -> TaskHub:
        """Return the hub that performs its steps; a new one for another loop."""
        hub = self._cached  # read once: another thread's loop may use this object too
        if hub is None or not hub.serves_here():
            if self.client is None and config().redis_async_client is None:
                refuse_no_redis()
            hub = self._cached = hub_of(async_client() if self.client is None else self.client)
        return hub

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self.hub().answer)
