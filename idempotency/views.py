"""`@idempotent` for plain Django views, sync and async. HTTP mapping only.

Put it below (inside) the decorators that authorise: on a replay they are asked again.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency import fingerprint
from idempotency.atomic import AtomicExchange
from idempotency.errors import Problem, problem_response
from idempotency.exchange import Exchange, identify, replay_after, run, traced
from idempotency.modes import ATOMIC, Mode
from idempotency.phases import PhasedExchange
from idempotency.recovery import Phases

View = Callable[..., Any]
OnProblem = Callable[[HttpRequest, Problem], HttpResponseBase]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_EXCHANGES: dict[Mode, type[Exchange]] = {Mode.ATOMIC: AtomicExchange, Mode.PHASED: PhasedExchange}


def open_exchange(
    request: HttpRequest, *, caller: Any, mode: Mode | Phases, redact: tuple[str, ...] = ()
) -> Exchange:
    """The exchange of this request, not begun. It is also put on the request, as `request.idempotency`.

    Raises:
        Problem: key missing or invalid, token unknown.
    """
    scope, key = identify(request, caller=caller)
    phases = mode if isinstance(mode, Phases) else None
    exchange = _EXCHANGES[mode.mode if isinstance(mode, Phases) else mode](
        scope=scope,
        key=key,
        content=fingerprint.canonical(request),
        request_id=getattr(request, "request_id", ""),
        handler=phases.name if phases else "",
        redact=(*redact, *phases.redact) if phases else redact,
    )
    request.idempotency = exchange  # type: ignore[attr-defined]
    return exchange


def idempotent(
    *,
    mode: Mode | Phases = ATOMIC,
    redact: tuple[str, ...] = (),
    on_problem: OnProblem = lambda request, problem: problem_response(problem, request),
) -> Callable[[View], View]:
    """Make a view's effect happen once per key. Safe methods pass through.

    The view leaves ATOMIC_REQUESTS, because the exchange opens the transaction itself; its safe methods keep one.

    Args:
        mode: see `idempotency.modes`; or the `Phases` that the view responds with.
        redact: JSON members whose values are masked before the answer is stored; the first caller gets them.
        on_problem: how the key's problems, and the Problems that the view raises, are shown. A refusal among
            them is stored and replayed like any answer.
    """

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):
            return _decorate_async(view, mode, redact, on_problem)

        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in SAFE_METHODS:
                with transaction_of_requests():
                    return view(request, *args, **kwargs)

            def handler() -> HttpResponseBase:
                try:
                    response: HttpResponseBase = view(request, *args, **kwargs)
                except Problem as problem:
                    return on_problem(request, problem)
                return response

            try:
                return run(open_exchange(request, caller=request, mode=mode, redact=redact), handler)
            except Problem as problem:
                return on_problem(request, problem)

        return _keyed(wrapper, mode)

    return decorate


def _keyed(view: View, mode: Mode | Phases) -> View:
    """`view`, outside ATOMIC_REQUESTS; and marked, because a method cannot take its class out of it."""
    view.idempotency_mode = mode  # type: ignore[attr-defined]
    return outside_atomic_requests(view)


def outside_atomic_requests(view: View) -> View:
    """`view`, taken out of ATOMIC_REQUESTS for the database of the ledger."""
    return non_atomic_requests(using=DEFAULT_DB_ALIAS)(view)


def transaction_of_requests() -> AbstractContextManager[object]:
    """What ATOMIC_REQUESTS asks for, for a call that is not keyed."""
    wanted = connections.settings[DEFAULT_DB_ALIAS]["ATOMIC_REQUESTS"]
    return transaction.atomic() if wanted else nullcontext()


def _decorate_async(view: View, mode: Mode | Phases, redact: tuple[str, ...], on_problem: OnProblem) -> View:
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

        keyed = asyncio.ensure_future(_run_async(request, mode, redact, handler))
        try:
            return await asyncio.shield(keyed)
        except asyncio.CancelledError:
            await asyncio.wait([keyed])  # the client is gone; what was begun for it is brought to its end
            raise
        except Problem as problem:
            return on_problem(request, problem)

    return _keyed(wrapper, mode)


async def _run_async(
    request: HttpRequest, mode: Mode | Phases, redact: tuple[str, ...], handler: Callable[[], Any]
) -> HttpResponseBase:
    """`run` for a coroutine: its database work and ours share one thread, so they share one transaction.

    Django's ASGI handler gives every request such a thread; where nobody did, it is made (and its connections
    closed) here. Otherwise two requests on one event loop would meet inside one transaction.
    """
    owns_thread = SyncToAsync.thread_sensitive_context.get(None) is None
    async with ThreadSensitiveContext():
        try:
            if hasattr(request, "auser"):
                await request.auser()
            exchange = await sync_to_async(open_exchange)(request, caller=request, mode=mode, redact=redact)
            with traced(exchange):
                replay = await sync_to_async(exchange.begin)()
                if replay is None:
                    try:
                        return await sync_to_async(exchange.finish)(await handler())
                    except BaseException as error:
                        return replay_after(error, await sync_to_async(exchange.fail)())
                return replay.replay()
        finally:
            if owns_thread:
                await sync_to_async(connections.close_all)()
