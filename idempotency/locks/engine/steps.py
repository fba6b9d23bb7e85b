"""Steps: one source for threads and asyncio. A generator yields them, a runner acts.

A protocol (acquire, wait, release) never touches a socket or a clock that sleeps. It yields a step and is sent the
step's result, or is thrown its error. `Threaded` performs steps by blocking the calling thread, `Tasked` by
awaiting; the decorated methods return a value in the one and a coroutine in the other.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from idempotency.locks.errors import LockUnavailable
from idempotency.redis.mailbox import READY_SECONDS, back_off_seconds
from idempotency.redis.task_connection import whole

DEFAULT: Any = object()  # argument that leaves the constructor's value

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Ask:
    """Run a script on the server; results in its reply, or in the client's error."""

    script: Any
    keys: list[str]
    arguments: list[Any]
    seconds: float | None = field(default=None, kw_only=True)  # until it is unanswered; None: the client decides


@dataclass(slots=True)
class SendNowait(Ask):
    """Run a script without waiting for its reply or failure, where the runner can."""

    then: Callable[[Any], None] | None = None  # called with the reply, if it comes; must not raise nor ask


@dataclass(slots=True)
class Listen:
    """Connect the process's subscriber within `seconds`. Results in whether it is connected.

    It comes before a question whose messages it must hear.
    """

    seconds: float


@dataclass(slots=True)
class Wait:
    """Wait until `bell` rings (True) or `seconds` are over (False)."""

    bell: Any
    seconds: float


@dataclass(slots=True)
class Pause:
    """Sleep for `seconds`, or until `bell` rings, which this process rings itself."""

    seconds: float
    bell: Any = None


@dataclass(slots=True)
class Finish:
    """Perform steps to their end, even if the caller is cancelled. Results in their result."""

    steps: "Steps[Any]"


@dataclass(slots=True)
class On:
    """Perform steps on another face, whose server may be another one; results in their result."""

    face: Any
    steps: "Steps[Any]"


@dataclass(slots=True)
class Work:
    """Call a blocking function, in a thread under asyncio. Results in its result."""

    function: Callable[[], Any]


Step = Ask | Listen | Wait | Pause | Finish | On | Work
Steps = Generator[Step, Any, T]


class Threaded:
    """Face that blocks the calling thread. `run` performs steps and returns the result."""

    run: Callable[[Steps[Any]], Any]


class Tasked:
    run: Callable[[Steps[Any]], Coroutine[Any, Any, Any]]


class operation(Generic[P, T]):  # noqa: N801  a decorator
    """Method written as steps, and called as a plain function or awaited by the face it is on.

    Inside another operation its steps are `Class.name.steps(self, …)`.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__
        self.__name__ = steps.__name__

    @overload
    def __get__(self, face: None, owner: Any) -> "operation[P, T]": ...
    @overload
    def __get__(self, face: Threaded, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: Tasked, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, face: Any, owner: Any) -> Any:
        return self if face is None else partial(_call, face, self.steps)


def _call(face: Any, steps: Callable[..., Steps[T]], *arguments: Any, **named: Any) -> Any:
    return face.run(steps(face, *arguments, **named))


def perform(steps: Steps[T], answer: Callable[[Step], Any]) -> T:
    """Perform `steps` to the end with a function that blocks."""
    try:
        step = next(steps)
        while True:
            try:
                result = answer(step)
            except BaseException as error:  # an interrupt too: the protocol must clean up after it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def perform_async(steps: Steps[T], answer: Callable[[Step], Coroutine[Any, Any, Any]]) -> T:
    """Perform `steps` to the end with a function that is awaited."""
    try:
        step = next(steps)
        while True:
            try:
                result = await answer(step)
            except BaseException as error:  # a cancellation too: the protocol must clean up after it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def deadline_of(wait_seconds: float | None) -> float:
    """Return the end of a wait on our clock: infinite for None, 0.0 for one that asks once."""
    if wait_seconds is None:
        return float("inf")
    return time.monotonic() + wait_seconds if wait_seconds > 0 else 0.0


def bound_of(deadline: float, *, least: float = READY_SECONDS) -> float | None:
    """Return the time for a command of a wait: what is left, or a little; None: no end."""
    return None if deadline == float("inf") else max(deadline - time.monotonic(), least)


def insist(ask: Ask, *, seconds: float) -> Steps[Any]:
    """Send the same command until it is answered."""
    until = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return (yield ask)
        except LockUnavailable:
            if time.monotonic() > until:
                raise
            yield Pause(back_off_seconds(failures))
            failures += 1


class Blocking(Threaded):
    """Runner of `Work`, `Wait` and `Pause` in the calling thread."""

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, answer)


class BesideTheLoop(Tasked):
    """Runner of `Work` in a thread, of `Wait` and `Pause` in the loop. Waiters take no thread.

    A thread cannot be stopped: a task is cancelled only when its work has ended, so that the protocol knows what
    to undo.
    """

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, answer_beside)


def answer(step: Step) -> Any:
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
    if isinstance(step, Wait):
        return await step.bell.wait(step.seconds)
    if isinstance(step, Pause):
        return await (asyncio.sleep(step.seconds) if step.bell is None else step.bell.wait(step.seconds))
    return await whole(asyncio.to_thread(answer, step))
