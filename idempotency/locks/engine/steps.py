"""One source for threads and for asyncio: an operation is a generator of steps, and a runner performs them.

A protocol (acquire, wait, release) never touches a socket or a clock that sleeps. It yields a step and is sent the
step's answer, or is thrown its error. `Threaded` performs steps by blocking the calling thread, `Tasked` by
awaiting; the decorated methods return a value in the one and a coroutine in the other.
"""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Ask:
    """Run a script on the server; answered with what it returns, or thrown the client's error.

    Attributes:
        seconds: after which it counts as unanswered, where the client would still retry; None: the client decides.
    """

    script: Any
    keys: list[str]
    arguments: list[Any]
    seconds: float | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class Tell(Ask):
    """An `Ask` whose answer, or that it failed, is not waited for where the runner can do without.

    Attributes:
        then: called with the answer when it comes; never, if it is lost. It must not raise, nor ask anything.
    """

    then: Callable[[Any], None] | None = None


@dataclass(slots=True)
class Listen:
    """See that the process's subscriber connection stands before anything is asked that it must hear.

    Answered with whether it does; it is not waited for longer than `seconds`.
    """

    seconds: float


@dataclass(slots=True)
class Wait:
    """Until `bell` rings (True) or `seconds` are over (False)."""

    bell: Any
    seconds: float


@dataclass(slots=True)
class Pause:
    """Sleep for `seconds`."""

    seconds: float


@dataclass(slots=True)
class Finish:
    """Perform these steps to their end, even if the caller is cancelled meanwhile; answered with their result."""

    steps: "Steps[Any]"


@dataclass(slots=True)
class On:
    """Perform `steps` on another face, whose server may be another one; answered with their result."""

    face: Any
    steps: "Steps[Any]"


@dataclass(slots=True)
class Work:
    """Call a function that blocks, in a thread where the runner must not; answered with its result."""

    function: Callable[[], Any]


Step = Ask | Listen | Wait | Pause | Finish | On | Work
Steps = Generator[Step, Any, T]


class Threaded:
    """A face whose operations block the calling thread."""

    def run(self, steps: Steps[T]) -> T:
        """Perform every step of `steps`, and return its result."""
        raise NotImplementedError


class Tasked:
    """A face whose operations are awaited."""

    async def run(self, steps: Steps[T]) -> T:
        """Perform every step of `steps`, and return its result."""
        raise NotImplementedError


class operation(Generic[P, T]):  # noqa: N801  a decorator
    """A method that is written as steps and called as a plain function, or awaited, by the face it is on.

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
    """Drive `steps` to its end with a function that blocks."""
    try:
        step = next(steps)
        while True:
            try:
                told = answer(step)
            except BaseException as error:  # an interrupt too: the protocol must clean up after it
                step = steps.throw(error)
            else:
                step = steps.send(told)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def perform_async(steps: Steps[T], answer: Callable[[Step], Coroutine[Any, Any, Any]]) -> T:
    """Drive `steps` to its end with a function that is awaited."""
    try:
        step = next(steps)
        while True:
            try:
                told = await answer(step)
            except BaseException as error:  # a cancellation too: the protocol must clean up after it
                step = steps.throw(error)
            else:
                step = steps.send(told)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
