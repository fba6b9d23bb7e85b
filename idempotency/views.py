"""Door for plain Django views, sync and async: HTTP mapping only.

Put `@idempotent` below (inside) the decorators that authorise, so that they are asked again before a replay.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from inspect import unwrap
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import connections, transaction
from django.http import Http404, HttpRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control

from idempotency.call import with_call
from idempotency.errors import Problem
from idempotency.postgres import home
from idempotency.protocol import tokens
from idempotency.protocol.exchange import Exchange
from idempotency.protocol.execute import AsyncHandler, Handler, Rewind, execute, execute_async
from idempotency.protocol.misuse import mark_keyed, mark_not_keyed, refuse_wrong_use
from idempotency.protocol.options import Options
from idempotency.protocol.policy import Policy
from idempotency.protocol.problems import problem_of, wants_page
from idempotency.request.keys import SAFE_METHODS

R = TypeVar("R")
V = TypeVar("V")
View = Callable[..., Any]

MALFORMED = (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError)
# ours, and Django's own 4xx answers: refusals of the view, no faults of the program
REFUSALS = (Problem, Http404, PermissionDenied, *MALFORMED)


@overload
def idempotent(view: Callable[..., R], /) -> Callable[..., R]: ...
@overload
def idempotent(**options: Unpack[Options]) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
def idempotent(view: View | None = None, /, **options: Unpack[Options]) -> Any:
    """Make a view's effect happen once per key: `@idempotent` or `@idempotent(…)`.

    Safe methods pass through, in the transaction of ATOMIC_REQUESTS; the others leave it, for the exchange opens
    its own. A parameter named `call` gets the `KeyedCall`. An `Http404` is stored and replayed like any refusal.

    Args:
        options: see `idempotency.protocol.policy.Policy`.

    Raises:
        TypeError: this is no function view of plain Django, or an option is wrong; the message says what to write.
    """
    policy = Policy.of(options)

    def decorate(view: View) -> View:
        refuse_wrong_use(view)
        keyed = keyed_function(view, policy)
        mark_keyed(keyed, policy)
        return keyed

    return decorate if view is None else decorate(view)


def not_keyed(view: V) -> V:
    """Exempt a view, or a class of views, from ``IDEMPOTENCY["KEYED"]``.

    Raises:
        TypeError: it is under `@idempotent`.
    """
    mark_not_keyed(view)
    return view


def keyed_function(view: View, policy: Policy) -> View:
    """Build the keyed form of a function view, sync or async, outside ATOMIC_REQUESTS."""
    is_async = iscoroutinefunction(view)
    if getattr(view, "__name__", "") == "dispatch":  # a plain function, whatever the handlers of its class are
        is_async = is_async or getattr(_instance_of(view), "view_is_async", False)
    build = _keyed_async if is_async else _keyed_sync
    return outside_atomic_requests(build(with_call(view), policy))


def keyed_class(cls: type[Any], policy: Policy) -> type[Any] | None:
    """Derive a class whose unsafe methods are keyed, inside its `dispatch` that authorises.

    Returns:
        None where no handler is left: each is exempt, or keyed by its decorator.
    """
    names = [name for name in cls.http_method_names if name.upper() not in SAFE_METHODS]
    return keyed_subclass(cls, names, lambda handler: _keyed_method(handler, policy))


def keyed_subclass(cls: type[Any], names: Iterable[str], build: Callable[[View], View]) -> type[Any] | None:
    """Derive a class with the named methods keyed by `build`; None where none is left to key."""
    if getattr(cls, "idempotency_exempt", False):
        return None
    found = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
    keyed = {name: build(handler) for name, handler in found.items() if not is_marked(handler)}
    outer = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    metaclass: Any = type(cls)
    return metaclass(cls.__name__, (cls,), outer | keyed) if keyed else None


def is_marked(handler: Any) -> bool:
    """Check if a decorator says if this handler is keyed."""
    return hasattr(handler, "idempotency_mode") or getattr(handler, "idempotency_exempt", False)


def _keyed_method(handler: View, policy: Policy) -> View:
    given, is_async = with_call(handler, request_at=1), iscoroutinefunction(handler)

    def function(request: HttpRequest, view: Any, *args: Any, **kwargs: Any) -> Any:
        return given(view, request, *args, **kwargs)

    keyed = keyed_function(markcoroutinefunction(function) if is_async else function, policy)

    @wraps(handler)
    def method(view: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return keyed(request, view, *args, **kwargs)

    return markcoroutinefunction(method) if is_async else method


def _keyed_sync(view: View, policy: Policy) -> View:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        _refuse_foreign(request)
        if (block := unkeyed_block(request, policy)) is not None:
            with block:
                return view(request, *args, **kwargs)
        rewind = Rewind(request, *_instances(view, args))

        def handler() -> HttpResponseBase:
            rewind.note_first_run()
            try:
                response: HttpResponseBase = view(request, *args, **kwargs)
            except REFUSALS as error:
                return refusal(request, error, policy)
            return response

        response = answer(request, policy, handler, rewind=rewind)
        return _page(request, response) if _shows_page(request, policy, response) else response

    return wrapper


def _keyed_async(view: View, policy: Policy) -> View:
    @wraps(view)
    async def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        _refuse_foreign(request)
        if unkeyed_block(request, policy) is not None:  # Django opens no transaction around an async view
            return await view(request, *args, **kwargs)
        rewind = Rewind(request, *_instances(view, args))

        async def handler() -> HttpResponseBase:
            rewind.note_first_run()
            try:
                response: HttpResponseBase = await view(request, *args, **kwargs)
            except REFUSALS as error:
                return await sync_to_async(refusal)(request, error, policy)
            return response

        response = await answer_async(request, policy, handler, rewind=rewind)
        if _shows_page(request, policy, response):
            return await sync_to_async(_page)(request, response)
        return response

    return wrapper


def _instance_of(view: View) -> Any:
    """Return the instance whose method `method_decorator` made a view; None for a function."""
    bound = getattr(unwrap(view, stop=lambda each: isinstance(each, partial)), "func", None)
    return getattr(bound, "__self__", None)


def _instances(view: View, args: tuple[Any, ...]) -> list[Any]:
    """Return the instance whose method this is, by `method_decorator` or ``KEYED``."""
    return [each for each in (_instance_of(view), *args[:1]) if hasattr(type(each), "as_view")]


def _shows_page(request: HttpRequest, policy: Policy, response: HttpResponseBase) -> bool:
    return response.status_code >= 400 and policy.on_problem is None and wants_page(request, response)


def _page(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    from idempotency.protocol.problem_pages import as_page  # noqa: PLC0415  only browsers get pages

    return as_page(request, response)


def answer(request: HttpRequest, policy: Policy, handler: Handler, *, rewind: Rewind) -> HttpResponseBase:
    """Answer a keyed call, or one of its key's problems."""
    try:
        return execute(policy.open(request, caller=request), handler, rewind=rewind)
    except Problem as problem:
        return policy.show(request, problem)


async def answer_async(
    request: HttpRequest, policy: Policy, handler: AsyncHandler, *, rewind: Rewind
) -> HttpResponseBase:
    async def begin() -> Exchange:
        if hasattr(request, "auser"):
            await request.auser()
        return await sync_to_async(policy.open)(request, caller=request)

    try:
        return await execute_async(begin, handler, rewind=rewind)
    except Problem as problem:
        return await sync_to_async(policy.show)(request, problem)


def refusal(request: HttpRequest, error: Exception, policy: Policy) -> HttpResponseBase:
    """Answer one of `REFUSALS` while it is handled: Django's with the project's own page."""
    problem = problem_of(error)
    return response_for_exception(request, error) if problem is None else policy.show(request, problem)


def outside_atomic_requests(view: View) -> View:
    """Take `view`, not what it wraps, out of ATOMIC_REQUESTS for the ledger's database."""
    others = getattr(view, "_non_atomic_requests", ())
    view._non_atomic_requests = {home.alias(), *others}  # type: ignore[attr-defined]
    return view


def unkeyed_block(request: HttpRequest, policy: Policy) -> AbstractContextManager[object] | None:
    """Return the block for the handler of a call with no key of its own; else None.

    A safe method runs in the transaction of requests; a handler that a keyed one calls joins that one's call.
    """
    if request.method in SAFE_METHODS:
        policy.pass_by(request)
        return transaction_of_requests()
    return nullcontext() if policy.joins(request) else None


def transaction_of_requests() -> AbstractContextManager[object]:
    """Open the transaction that ATOMIC_REQUESTS asks for, for a call that is not keyed."""
    alias = home.alias()
    wanted = connections.settings[alias]["ATOMIC_REQUESTS"]
    return transaction.atomic(alias) if wanted else nullcontext()


def kept_from_caches(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Wrap what answers requests, so that no shared cache stores a page that has a token."""

    def kept(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if hasattr(request, tokens.SHOWN):
            patch_cache_control(response, private=True, no_cache=True)
        return response

    def answer(request: HttpRequest) -> HttpResponseBase:
        return kept(request, get_response(request))

    async def answer_async(request: HttpRequest) -> HttpResponseBase:
        return kept(request, await get_response(request))

    return answer_async if iscoroutinefunction(get_response) else answer


def _refuse_foreign(request: Any) -> None:
    if not isinstance(request, HttpRequest):
        raise TypeError(
            f"@idempotent was called with a {type(request).__name__} and not with Django's HttpRequest. In "
            "Django REST framework, decorate with idempotency.drf.idempotent; in a class of Django's, use "
            "method_decorator."
        )
