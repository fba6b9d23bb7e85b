"""`synchronized`: a function that runs under a lock named from its arguments."""

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from functools import wraps
from inspect import isasyncgen, isawaitable, isgenerator, signature
from string import Formatter
from typing import Any, Literal, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction

from idempotency.call import deferred, first_missing, refuse_deferred
from idempotency.locks.engine.contexts import Settings
from idempotency.locks.errors import LockTimeout
from idempotency.locks.mutex import AsyncLock, Lock

F = TypeVar("F", bound=Callable[..., Any])


def synchronized(
    name: str, *, when_taken: Literal["wait", "skip", "raise"] = "wait", **settings: Unpack[Settings]
) -> Callable[[F], F]:
    """Run each call of a function or coroutine under a `Lock`; goes below a queue's decorator.

        @app.task
        @synchronized("order:{order_id}", when_taken="skip")
        def close(order_id, reason=""): ...

    Args:
        name: of the lock, with the call's arguments in braces, as `str.format` reads them: ``{order.pk}``.
        when_taken: ``wait`` and ``raise`` end in `LockTimeout`, ``skip`` returns None and does not run.
        settings: as of `Lock`; for ``skip`` and ``raise`` `wait_seconds` is 0, unless given.

    Raises:
        TypeError: the function has no such argument, or cannot be run under a lock.
    """
    if when_taken not in {"wait", "skip", "raise"}:
        raise ValueError(f"when_taken must be wait, skip or raise, not {when_taken!r}")
    if when_taken != "wait":
        settings.setdefault("wait_seconds", 0)
    skipped = LockTimeout if when_taken == "skip" else ()

    def decorate(function: F) -> F:
        named = _namer(name, function)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as held:
                try:
                    held.enter_context(Lock(named(*args, **kwargs), **settings))
                except skipped:
                    return None
                result = function(*args, **kwargs)
                if isawaitable(result) or isgenerator(result) or isasyncgen(result):  # work after the release
                    raise deferred(function, "@synchronized")
                return result

        @wraps(function)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            async with AsyncExitStack() as held:
                try:
                    await held.enter_async_context(AsyncLock(named(*args, **kwargs), **settings))
                except skipped:
                    return None
                return await function(*args, **kwargs)

        return cast(F, arun if iscoroutinefunction(function) else run)

    return decorate


def _namer(name: str, function: Callable[..., Any]) -> Callable[..., str]:
    """Return what names a call's lock, or raise `TypeError` where none could be named or held."""
    refuse_deferred(function, "@synchronized")
    taken = signature(function)
    fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    root = first_missing((field.replace("[", ".").partition(".")[0] for field in fields), taken)
    if root is not None:
        raise TypeError(f"{function!r} has no argument {root!r}, which the lock's name {name!r} needs.")

    def named(*args: Any, **kwargs: Any) -> str:
        bound = taken.bind(*args, **kwargs)
        bound.apply_defaults()
        return name.format_map(kwargs | bound.arguments)

    return named
