"""`@idempotent` for plain Django views, sync and async. HTTP mapping only.

Put it below (inside) the decorators that authorise: on a replay they are asked again.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency import fingerprint
from idempotency.atomic import AtomicExchange
from idempotency.errors import Problem, problem_response
from idempotency.exchange import Exchange, identify, run
from idempotency.modes import ATOMIC, Mode
from idempotency.phases import PhasedExchange

View = Callable[..., Any]
OnProblem = Callable[[HttpRequest, Problem], HttpResponseBase]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_EXCHANGES: dict[Mode, type[Exchange]] = {Mode.ATOMIC: AtomicExchange, Mode.PHASED: PhasedExchange}


def open_exchange(request: HttpRequest, *, caller: Any, mode: Mode) -> Exchange:
    """The exchange of this request, not begun. It is also put on the request, as `request.idempotency`.

    Raises:
        Problem: key missing or invalid, token unknown.
    """
    scope, key = identify(request, caller=caller)
    exchange = _EXCHANGES[mode](
        scope=scope,
        key=key,
        content=fingerprint.canonical(request),
        request_id=getattr(request, "request_id", ""),
    )
    request.idempotency = exchange  # type: ignore[attr-defined]
    return exchange


def idempotent(
    *,
    mode: Mode = ATOMIC,
    on_problem: OnProblem = lambda request, problem: problem_response(problem, request),
) -> Callable[[View], View]:
    """Make a view's effect happen once per key. Safe methods pass through.

    Args:
        mode: see `idempotency.modes`.
        on_problem: how the key's problems, and the Problems that the view raises, are shown. A refusal among
            them is stored and replayed like any answer.
    """

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):
            return _decorate_async(view, mode, on_problem)

        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in SAFE_METHODS:
                return view(request, *args, **kwargs)

            def handler() -> HttpResponseBase:
                try:
                    response: HttpResponseBase = view(request, *args, **kwargs)
                except Problem as problem:
                    return on_problem(request, problem)
                return response

            try:
                return run(open_exchange(request, caller=request, mode=mode), handler)
            except Problem as problem:
                return on_problem(request, problem)

        return wrapper

    return decorate


def _decorate_async(view: View, mode: Mode, on_problem: OnProblem) -> View:
    @wraps(view)
    async def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method in SAFE_METHODS:
            return await view(request, *args, **kwargs)

        async def handler() -> HttpResponseBase:
            try:
                response: HttpResponseBase = await view(request, *args, **kwargs)
            except Problem as problem:
                return on_problem(request, problem)
            return response

        try:
            return await _run_async(request, mode, handler)
        except Problem as problem:
            return on_problem(request, problem)

    return wrapper


async def _run_async(request: HttpRequest, mode: Mode, handler: Callable[[], Any]) -> HttpResponseBase:
    """`run` for a coroutine: its database work and ours share one thread, so they share one transaction.

    Django's ASGI handler gives every request such a thread; where nobody did, it is made (and its connections
    closed) here. Otherwise two requests on one event loop would meet inside one transaction.
    """
    owns_thread = SyncToAsync.thread_sensitive_context.get(None) is None
    async with ThreadSensitiveContext():
        try:
            await request.auser()
            exchange = await sync_to_async(open_exchange)(request, caller=request, mode=mode)
            replay = await sync_to_async(exchange.begin)()
            if replay is None:
                try:
                    return await sync_to_async(exchange.finish)(await handler())
                except BaseException:
                    replay = await sync_to_async(exchange.fail)()
                    if replay is None:
                        raise
            return replay.replay()
        finally:
            if owns_thread:
                await sync_to_async(connections.close_all)()
