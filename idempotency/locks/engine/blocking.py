"""Runners for servers whose client blocks: in the calling thread, or, for asyncio, in a thread beside the loop."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from idempotency.locks.engine.steps import Pause, Step, Steps, Tasked, Threaded, Work, perform, perform_async

T = TypeVar("T")


class Blocking(Threaded):
    """Performs `Work` and `Pause` where it is called."""

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, _answer)


class BesideTheLoop(Tasked):
    """Performs `Work` in a thread, `Pause` in the loop.

    A thread cannot be stopped: a cancelled task is told only when the work it began has ended, so that the
    protocol knows what to undo.
    """

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, _answer_beside)


def _answer(step: Step) -> Any:
    match step:
        case Work(function):
            return function()
        case Pause(seconds):
            return time.sleep(seconds)
        case _:
            raise TypeError(f"{step!r} needs a server of Redis")


async def _answer_beside(step: Step) -> Any:
    match step:
        case Work(function):
            return await whole(asyncio.to_thread(function))
        case Pause(seconds):
            return await asyncio.sleep(seconds)
        case _:
            raise TypeError(f"{step!r} needs a server of Redis")


async def whole(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Run `work` to its end even if we are cancelled, and only then say so: nothing overtakes a command."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what is told
        raise
