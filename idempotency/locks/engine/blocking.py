"""Runners for clients that block: in the calling thread, or, for asyncio, in a thread beside the loop."""

import asyncio
import time
from typing import Any, TypeVar

from idempotency.locks.engine.steps import Pause, Step, Steps, Tasked, Threaded, Wait, Work, perform, perform_async
from idempotency.redis.task_connection import whole

T = TypeVar("T")


class Blocking(Threaded):
    """Runner of `Work`, `Wait` and `Pause` in the calling thread."""

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, answer)


class BesideTheLoop(Tasked):
    """Runner of `Work` in a thread, of `Wait` and `Pause` in the loop, where waiters leave threads for a release.

    A thread cannot be stopped: a task is cancelled only when its work has ended, so that the protocol knows what
    to undo.
    """

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, answer_beside)


def answer(step: Step) -> Any:
    """Perform one step in this thread."""
    match step:
        case Work(function):
            return function()
        case Wait(bell, seconds):
            return bell.wait(seconds)
        case Pause(seconds, bell):
            return time.sleep(seconds) if bell is None else bell.wait(seconds)
        case _:
            raise TypeError(f"{step!r} needs a server of Redis")


async def answer_beside(step: Step) -> Any:
    """Perform one step in a thread beside the loop, a wait or a pause in the loop."""
    if isinstance(step, Wait):
        return await step.bell.wait(step.seconds)
    if isinstance(step, Pause):
        return await (asyncio.sleep(step.seconds) if step.bell is None else step.bell.wait(step.seconds))
    return await whole(asyncio.to_thread(answer, step))
