"""Keyed calls by setting, and the answers to what keyed views raise.

A view under `@idempotent` runs the protocol at the place of its decorator. For the views that ``KEYED`` names, the
middleware runs it, as if `@idempotent` stood directly on the function or handler method: decorators, mixins and
REST framework authenticate, throttle and check permissions first, also before a replay.
"""

from collections.abc import Callable
from functools import cache, partial, update_wrapper
from types import CellType, FunctionType
from typing import Any, NoReturn

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse

from idempotency.conf import MARKED, UNSAFE, config, parsed
from idempotency.errors import problem_response, raise_if_not_migrated
from idempotency.protocol.policy import Policy
from idempotency.protocol.problem_pages import as_page
from idempotency.protocol.problems import problem_of, wants_page
from idempotency.request.keys import FORM_FIELD, FORMS, SAFE_METHODS
from idempotency.views import (
    View,
    is_marked,
    kept_from_caches,
    keyed_class,
    keyed_function,
    outside_atomic_requests,
)

__all__ = ["IdempotencyMiddleware", "is_named", "keyed_form", "problem_of"]

BY_SETTING = Policy()


class IdempotencyMiddleware(partial[Any]):
    """Middleware, sync and async. Place it last, after authentication and sessions.

    A `partial` of what follows it, so that it costs a call next to nothing on the way through; and it looks at
    views only where ``KEYED`` names some. A server that loads it refuses to start with useless settings, or with a
    mistake that no call would say.
    """

    sync_capable = True
    async_capable = True

    def __new__(cls, get_response: Callable[[HttpRequest], Any]) -> "IdempotencyMiddleware":
        return super().__new__(cls, kept_from_caches(get_response))

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        apps.get_app_config("idempotency").refuse_mistakes()  # type: ignore[attr-defined]
        is_async = iscoroutinefunction(get_response)
        if is_async:
            markcoroutinefunction(self)
        settings = parsed()
        if settings is None or settings.keyed != MARKED:
            self.process_view = self._process_view_async if is_async else self._process_view
        elif django_settings.DEBUG:
            self.process_view = _refuse_unread_token

    def _process_view(
        self, request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Answer a call that ``KEYED`` names; None for all others, which Django goes on with."""
        keyed = _keyed_for(request, view)
        if keyed is None:
            return None
        call = async_to_sync(keyed) if iscoroutinefunction(keyed) else keyed
        try:
            response: HttpResponseBase = call(request, *args, **kwargs)
        except Exception as error:
            return _Raised(error)
        return response

    async def _process_view_async(
        self, request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        keyed = _keyed_for(request, view)
        if keyed is None:
            return None
        call = keyed if iscoroutinefunction(keyed) else sync_to_async(keyed)
        try:
            response: HttpResponseBase = await call(request, *args, **kwargs)
        except Exception as error:
            return _Raised(error)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Answer with a problem document, or its page; 503 for a database that is away.

        Raises:
            ImproperlyConfigured: the ledger was never migrated.
        """
        problem = problem_of(exception)
        if problem is None:
            raise_if_not_migrated(exception)
            return None
        response = problem_response(problem, request)
        is_page = wants_page(request, response) and _is_plain(request)
        return as_page(request, response) if is_page else response


def _refuse_unread_token(request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ImproperlyConfigured, in DEBUG, for a form's token that no decorator reads."""
    is_form = request.content_type in FORMS and _is_plain(request)
    if is_form and FORM_FIELD in request.POST and not _says_if_keyed(view):
        name = getattr(view, "__qualname__", repr(view))
        raise ImproperlyConfigured(
            f"{name} gets a form with an {FORM_FIELD} and does not read it: copies count. Put @idempotent on it."
        )


def _says_if_keyed(view: Any) -> bool:
    cls = getattr(view, "view_class", None)
    methods = [] if cls is None else [getattr(cls, name) for name in dir(cls)]
    return any(map(is_marked, (view, cls, *methods)))


def _is_plain(request: HttpRequest) -> bool:
    """Check if the view is neither REST framework's nor Ninja's."""
    view = request.resolver_match.func if request.resolver_match else None
    return not hasattr(view, "cls") and not is_of_ninja(view)


def is_of_ninja(view: Any) -> bool:
    return (getattr(view, "__module__", "") or "").startswith("ninja.")


class _Raised(SimpleTemplateResponse):
    """Error of a view, raised again where Django asks each middleware's `process_exception`.

    Django does not ask them for what `process_view` raises, but for what rendering a response does.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__("", {})
        self._error = error

    def render(self) -> NoReturn:
        raise self._error


def is_named(path: str) -> bool:
    """Check if ``KEYED`` names the views at this path."""
    keyed = config().keyed
    return keyed == UNSAFE or (keyed != MARKED and path.startswith(tuple(keyed)))


def _keyed_for(request: HttpRequest, view: View) -> View | None:
    if request.method in SAFE_METHODS or not is_named(request.path_info):
        return None
    keyed = _answering_form(view)
    if keyed is None or iscoroutinefunction(keyed):  # Django opens no transaction around an async view
        return keyed
    return BaseHandler().make_view_atomic(keyed)  # as Django does at each request, in whose place this answers


@cache
def _answering_form(view: View) -> View | None:
    keyed = keyed_form(view)
    return None if keyed is None else outside_atomic_requests(keyed)


@cache
def keyed_form(view: View) -> View | None:
    """Build the keyed form of a view once; None where it is exempt, or keyed by its decorator.

    Raises:
        TypeError: a view that knows its caller inside only, and cannot be keyed there.
    """
    if is_marked(view):
        return None
    if isinstance(view, partial):
        inner = keyed_form(view.func)
        return None if inner is None else partial(inner, *view.args, **view.keywords)
    inner = _decorated(view)
    if inner is None:
        return _keyed_alone(view)
    keyed = keyed_form(inner)
    return None if keyed is None else _decorated_again(view, inner, keyed)


def _keyed_alone(view: Any) -> View | None:
    if is_of_ninja(view):
        from idempotency.ninja import refuse_unkeyed  # noqa: PLC0415  only where Ninja is installed

        refuse_unkeyed(view)
        return None
    if not _is_made_by_as_view(view):
        return keyed_function(view, BY_SETTING)
    if hasattr(view, "cls"):
        from idempotency.drf import keyed_view  # noqa: PLC0415  only where REST framework is installed

        of_rest: View | None = keyed_view(view, BY_SETTING)
        return of_rest
    cls = keyed_class(view.view_class, BY_SETTING)
    keyed: View | None = None if cls is None else cls.as_view(**view.view_initkwargs)
    return keyed


def _is_made_by_as_view(view: View) -> bool:
    # decorators copy the attributes that `as_view` sets, but not its variables
    return isinstance(view, FunctionType) and "initkwargs" in view.__code__.co_freevars


def _decorated(view: View) -> View | None:
    """Return the view inside a decorator; None where there is none, or it belongs to the view.

    Context managers such as `transaction.atomic` belong to it: the protocol needs the outermost transaction.

    Raises:
        TypeError: the decorator cannot be copied around the keyed view, nor left out: it may be what authorises.
    """
    inner: View | None = getattr(view, "__wrapped__", None)
    if inner is None or _is_made_by_as_view(view):
        return None
    if not isinstance(view, FunctionType):
        raise TypeError(f"{inner.__qualname__} is inside a decorator that is no plain function.")
    if view.__globals__.get("__name__") == "contextlib":
        return None
    if CellType(inner) not in (view.__closure__ or ()):  # cells are equal if their contents are
        raise TypeError(
            f"{inner.__qualname__} is inside a decorator that does not hold it in a variable of its own."
        )
    return inner


def _decorated_again(view: Any, inner: View, keyed: View) -> View:
    """Copy the decorator's wrapper for another inner view; nothing of the project is changed."""
    cells = tuple(CellType(keyed) if cell == CellType(inner) else cell for cell in view.__closure__)
    copy = FunctionType(view.__code__, view.__globals__, view.__name__, view.__defaults__, cells)
    copy.__kwdefaults__ = view.__kwdefaults__
    update_wrapper(copy, view)
    return copy
