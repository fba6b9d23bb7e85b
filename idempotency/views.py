"""`@idempotent` for plain Django views, sync and async. HTTP mapping only.

Put it below (inside) the decorators that authorise: on a replay they are asked again.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, overload

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.transaction import non_atomic_requests
from django.http import Http404, HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase

from idempotency.errors import Problem, problem_response
from idempotency.middleware import problem_of
from idempotency.modes import ATOMIC, Mode
from idempotency.protocol.atomic import AtomicExchange
from idempotency.protocol.exchange import Exchange, identify, replay_after, run, told, traced
from idempotency.protocol.misuse import mark_keyed, refuse_wrong_use
from idempotency.protocol.phases import PhasedExchange
from idempotency.protocol.recovery import Phases
from idempotency.request import fingerprint

View = Callable[..., Any]
OnProblem = Callable[[HttpRequest, Problem], HttpResponseBase]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_EXCHANGES: dict[Mode, type[Exchange]] = {Mode.ATOMIC: AtomicExchange, Mode.PHASED: PhasedExchange}

# what Django itself answers with a 4xx: refusals of the view, and no faults of the program
MALFORMED = (BadRequest, SuspiciousOperation, MultiPartParserError)
DJANGOS_REFUSALS = (Http404, PermissionDenied, *MALFORMED)
REQUEST_ID_MAX = 64  # characters that the ledger keeps


def open_exchange(
    request: HttpRequest, *, caller: Any, mode: Mode | Phases, redact: tuple[str, ...] = ()
) -> Exchange:
    """The exchange of this request, not begun. It is also put on the request, as `request.idempotency`.

    Raises:
        Problem: see `exchange.identify`.
    """
    scope, key = identify(request, caller=caller)
    phases = mode if isinstance(mode, Phases) else None
    exchange = _EXCHANGES[_mode_of(mode)](
        scope=scope,
        key=key,
        content=fingerprint.canonical(request),
        request_id=str(getattr(request, "request_id", None) or "")[:REQUEST_ID_MAX],
        handler=phases.name if phases else "",
        redact=(*redact, *phases.redact) if phases else redact,
        request=request,
    )
    request.idempotency = exchange  # type: ignore[attr-defined]
    return exchange


def _mode_of(mode: Mode | Phases) -> Mode:
    return mode.mode if isinstance(mode, Phases) else mode


@contextmanager
def handling(request: HttpRequest) -> Iterator[None]:
    """Around a keyed handler: a keyed one that it calls with the same request takes part in it."""
    request._keyed = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        request._keyed = False  # type: ignore[attr-defined]


def takes_part(request: HttpRequest, *, mode: Mode | Phases, redact: tuple[str, ...] = ()) -> bool:
    """Whether a keyed handler calls this one, e.g. by `super().post()`: key, transaction and answer are its own.

    Raises:
        RuntimeError: the two differ in their mode, so this one would lack its transaction, or be inside one.
    """
    if not getattr(request, "_keyed", False):
        return False
    exchange: Exchange = request.idempotency  # type: ignore[attr-defined]
    if exchange.mode is not _mode_of(mode):
        raise RuntimeError(f"A keyed handler ({exchange.mode}) calls one of another mode ({_mode_of(mode)}).")
    exchange._redact = (*exchange._redact, *redact)
    return True


def refusal_of_django(request: HttpRequest, error: Exception, on_problem: OnProblem) -> HttpResponseBase:
    """What Django answers to one of `DJANGOS_REFUSALS`, with the project's own page; while `error` is handled."""
    problem = problem_of(error)
    return response_for_exception(request, error) if problem is None else on_problem(request, problem)


@overload
def idempotent(view: View, /) -> View: ...
@overload
def idempotent(
    *, mode: Mode | Phases = ..., redact: tuple[str, ...] = ..., on_problem: OnProblem = ...
) -> Callable[[View], View]: ...
def idempotent(
    view: View | None = None,
    /,
    *,
    mode: Mode | Phases = ATOMIC,
    redact: tuple[str, ...] = (),
    on_problem: OnProblem = lambda request, problem: problem_response(problem, request),
) -> Any:
    """Make a view's effect happen once per key, as `@idempotent` or `@idempotent(…)`. Safe methods pass through.

    The view leaves ATOMIC_REQUESTS, because the exchange opens the transaction itself; its safe methods keep one.

    Args:
        mode: see `idempotency.modes`; or the `Phases` that the view responds with.
        redact: JSON members whose values are masked before the answer is stored; the first caller gets them.
        on_problem: how the key's problems, and the Problems that the view raises, are shown. A refusal among
            them is stored and replayed like any answer, and so is the page of an `Http404`.

    Raises:
        TypeError: this is no function view of plain Django; the message says what to write instead.
    """

    def decorate(view: View) -> View:
        refuse_wrong_use(view)
        if iscoroutinefunction(view):
            return _decorate_async(view, mode, redact, on_problem)

        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _must_be_djangos(request)
            if request.method in SAFE_METHODS:
                with transaction_of_requests():
                    return view(request, *args, **kwargs)
            if takes_part(request, mode=mode, redact=redact):
                return view(request, *args, **kwargs)

            def handler() -> HttpResponseBase:
                try:
                    with handling(request):
                        response: HttpResponseBase = view(request, *args, **kwargs)
                except Problem as problem:
                    return on_problem(request, problem)
                except DJANGOS_REFUSALS as error:
                    return refusal_of_django(request, error, on_problem)
                return response

            try:
                return run(open_exchange(request, caller=request, mode=mode, redact=redact), handler)
            except Problem as problem:
                return on_problem(request, problem)

        return _keyed(wrapper, mode)

    return decorate if view is None else decorate(view)


def _must_be_djangos(request: Any) -> None:
    if not isinstance(request, HttpRequest):
        raise TypeError(
            f"@idempotent was called with a {type(request).__name__} and not with Django's HttpRequest. In Django "
            "REST framework, decorate a class's method with idempotency.drf.idempotent; in a class of Django's, "
            "use method_decorator."
        )


def _keyed(view: View, mode: Mode | Phases) -> View:
    """`view`, outside ATOMIC_REQUESTS; and marked, because a method cannot take its class out of it."""
    mark_keyed(view, mode)
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
        _must_be_djangos(request)
        if request.method in SAFE_METHODS:
            return await view(request, *args, **kwargs)
        if takes_part(request, mode=mode, redact=redact):
            return await view(request, *args, **kwargs)

        async def handler() -> HttpResponseBase:
            try:
                with handling(request):
                    response: HttpResponseBase = await view(request, *args, **kwargs)
            except Problem as problem:
                return on_problem(request, problem)
            except DJANGOS_REFUSALS as error:
                return await sync_to_async(refusal_of_django)(request, error, on_problem)
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

    Django's ASGI handler gives every request such a thread, and under WSGI it is the caller's own; where nobody
    did, it is made (and its connections closed) here. Otherwise two requests on one event loop would meet inside
    one transaction.
    """
    callers_thread = getattr(AsyncToSync.executors, "current", None)
    owns_thread = callers_thread is None and SyncToAsync.thread_sensitive_context.get(None) is None
    async with ThreadSensitiveContext():
        try:
            if hasattr(request, "auser"):
                await request.auser()
            exchange = await sync_to_async(open_exchange)(request, caller=request, mode=mode, redact=redact)
            with traced(exchange):
                replay = await sync_to_async(exchange.begin)()
                if replay is None:
                    try:
                        return told(exchange, await sync_to_async(exchange.finish)(await handler()))
                    except BaseException as error:
                        return replay_after(error, await sync_to_async(exchange.fail)())
                return told(exchange, replay.replay())
        finally:
            if owns_thread:
                await sync_to_async(connections.close_all)()
