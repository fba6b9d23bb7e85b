"""Keyed call as its handler sees it: a parameter named `call`, or `call_of(request)`.

Also which functions a door refuses: those that return before their work is done, or lack an argument; and how
their arguments are named.
"""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import Parameter, Signature, isasyncgenfunction, isgeneratorfunction, unwrap
from typing import Any, Protocol

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from idempotency.modes import Mode

NAME = "call"


class KeyedCall(Protocol):
    """Call that a handler answers. Every door passes it to a parameter named ``call``.

        @idempotent(mode=Mode.PHASED)
        def refund(request, call: KeyedCall): ...

    A call without a key, where the view's policy lets one through, has its own `key_digest` and is never resumed.
    """

    @property
    def mode(self) -> Mode:
        """Mode of the handler."""

    @property
    def key_digest(self) -> str:
        """64 hexadecimal characters of caller, route and key; safe to log and to derive ids from."""

    @property
    def resumed(self) -> bool:
        """True if an earlier run of this key may have committed something (phased only)."""

    @property
    def was_uncertain(self) -> bool:
        """True if the caller has heard 202: the call outside has begun (phased only)."""

    @property
    def subject(self) -> str:
        """Subject of the call, as ``kind:id``; empty before `about`."""

    def about(self, kind: str, identifier: object) -> None:
        """Say what the call is about, e.g. ``about("order", order.id)``: shown in admin and logs."""

    def set_lifetime(self, seconds: float) -> None:
        """Replay this answer for `seconds` only, at most ``BODY_SECONDS``; 0 stores no body.

        A later retry gets 410: the key stays used.
        """

    def do_not_store(self) -> None:
        """Free the key, as a 5xx does: an atomic handler rolls back, a phased run may resume.

        For a refusal that may be over at the next try; a RuntimeError where the answer is none, and an atomic
        handler has written.
        """


def call_of(request: Any) -> KeyedCall:
    """Return the call that a handler answers.

    Args:
        request: as the handler got it, Django's or REST framework's.

    Raises:
        RuntimeError: no view under `@idempotent`, or that ``KEYED`` names, handles this request.
    """
    call: KeyedCall | None = getattr(request, "idempotency", None)
    if call is None:
        raise RuntimeError(
            "This request is no keyed call. Put @idempotent on the view, or name its path in IDEMPOTENCY['KEYED']."
        )
    return call


def takes_call(handler: Any) -> bool:
    """Check if the innermost function of a handler has a parameter named ``call``."""
    function = unwrap(handler)
    while isinstance(function, partial):
        function = unwrap(function.func)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    # not `inspect.signature`: Django's method_decorator decorates once a request
    return code is not None and NAME in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def with_call(handler: Callable[..., Any], *, request_at: int = 0) -> Callable[..., Any]:
    """Build the form of a handler that gets its `call` from the request, where it names one.

    Args:
        request_at: position of the request among the handler's arguments.
    """
    if not takes_call(handler):
        return handler

    @wraps(handler)
    def given(*args: Any, **kwargs: Any) -> Any:
        if NAME not in kwargs:  # a part of the address, or a handler that calls this one
            kwargs[NAME] = call_of(args[request_at])
        return handler(*args, **kwargs)

    return markcoroutinefunction(given) if iscoroutinefunction(handler) else given


def refuse_deferred(function: Callable[..., Any], by: str) -> None:
    """Raise `TypeError` for a result that is still to be done: a queue's task, a generator."""
    # of Celery and RQ, `django.tasks`, procrastinate, dramatiq, huey
    queued = any(hasattr(function, each) for each in ("delay", "enqueue", "defer", "send", "call_local"))
    if queued or isgeneratorfunction(function) or isasyncgenfunction(function):
        raise deferred(function, by)


def deferred(function: Callable[..., Any], by: str) -> TypeError:
    return TypeError(
        f"{function!r} returns before its work is done: put {by} on the function that does it, below the "
        "decorator of a task queue."
    )


def first_missing(names: Iterable[str], taken: Signature) -> str | None:
    """Return the first of some names that is no argument of a function with this signature."""
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in taken.parameters.values())
    return next((name for name in names if name not in taken.parameters and (not takes_any or name == "")), None)


def arguments_by_name(taken: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Name the arguments of a call, defaults too; those of ``**kwargs`` by their own names."""
    bound = taken.bind(*args, **kwargs)
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name, parameter in taken.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given |= given.pop(name)
    return given
