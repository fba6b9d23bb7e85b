"""Actors: threads and asyncio tasks that do one thing after the other on demand.

The same test drives both faces of a lock through them: `actor.do` waits for the answer, `actor.begin` does not.
Each actor is a holder of its own, as a thread or a task is.
"""

import asyncio
import contextlib
import inspect
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

SECONDS = 30.0  # any answer that takes longer is a failure


class Actor:
    """Runs functions one after the other in a thread of its own."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def begin(self, job: Callable[[], Any]) -> "Future[Any]":
        """Have it run after what was begun before."""
        answer: Future[Any] = Future()
        self._jobs.put((job, answer))
        return answer

    def do(self, job: Callable[[], Any]) -> Any:
        """Have it run, and return or raise what it does."""
        return self.begin(job).result(SECONDS)

    def end(self) -> None:
        """No more jobs; the thread has ended afterwards."""
        self._jobs.put(None)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "it still waits for something"

    def _work(self) -> None:
        while (said := self._jobs.get()) is not None:
            job, answer = said
            try:
                answer.set_result(job())
            except BaseException as error:
                answer.set_exception(error)


class TaskActor:
    """Runs functions one after the other in a task of its own, and awaits what they return."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()
        self._task = asyncio.run_coroutine_threadsafe(self._started(), loop).result(SECONDS)

    def begin(self, job: Callable[[], Any]) -> "Future[Any]":
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, (job, answer))
        return answer

    def do(self, job: Callable[[], Any]) -> Any:
        return self.begin(job).result(SECONDS)

    def cancel(self) -> None:
        """Interrupt what it does now; the task goes on with its next job."""
        self._loop.call_soon_threadsafe(self._task.cancel)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)
        asyncio.run_coroutine_threadsafe(asyncio.wait([self._task]), self._loop).result(SECONDS)

    async def _started(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self._work())

    async def _work(self) -> None:
        while (said := await self._jobs.get()) is not None:
            job, answer = said
            try:
                result = job()
                answer.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:
                answer.set_exception(error)


class Faced:
    """Threads, or tasks of `loop`: actors of one kind, ended by `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self._actors: list[Any] = []

    def run(self, coroutine: Any) -> Any:
        """Await it in the loop."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def actor(self) -> Any:
        """A new holder."""
        self._actors.append(Actor() if self.loop is None else TaskActor(self.loop))
        return self._actors[-1]

    def actors(self, count: int) -> list[Any]:
        return [self.actor() for _ in range(count)]

    def end(self, actor: Any) -> None:
        """That holder is no more."""
        self._actors.remove(actor)
        actor.end()

    def within(self, lock: Any, job: Callable[[], Any]) -> Callable[[], Any]:
        """`job` in the lock's `with`."""

        def blocking() -> None:
            with lock:
                job()

        async def awaited() -> None:
            async with lock:
                job()

        return blocking if self.loop is None else awaited

    def close(self) -> None:
        for actor in self._actors:
            actor.end()


@contextlib.contextmanager
def a_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_emptied(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()


@contextlib.contextmanager
def a_face(face: str) -> Iterator[Faced]:
    """Actors on `threads`, or on `asyncio`."""
    with contextlib.ExitStack() as stack:
        faced = Faced(stack.enter_context(a_loop()) if face == "asyncio" else None)
        stack.callback(faced.close)
        yield faced


async def _emptied() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def until(true: Callable[[], Any], what: str = "") -> None:
    """Wait at most `SECONDS` for what another process or thread brings about."""
    deadline = time.monotonic() + SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true: {what or true}")
        time.sleep(0.002)
