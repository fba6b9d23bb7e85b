"""Door for Django REST framework: keyed handler methods, problem+json for every error, one-time tokens."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, overload

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.call import with_call
from idempotency.errors import AnonymousRefused, Problem, malformed, problem_response
from idempotency.modes import ATOMIC, Mode
from idempotency.protocol import tokens
from idempotency.protocol.execute import Policy, execute
from idempotency.protocol.misuse import mark_keyed, refuse_functions, refuse_wrong_use
from idempotency.protocol.problems import problem_of
from idempotency.protocol.recovery import Phases
from idempotency.request.principal import caller_of
from idempotency.response.answers import Verdict, verdict_on
from idempotency.views import (
    DJANGOS_REFUSALS,
    MALFORMED,
    SAFE_METHODS,
    keyed_subclass,
    not_keyed,
    outside_atomic_requests,
    refusal_of_django,
    show_problem,
    transaction_of_requests,
)

Handler = Callable[..., HttpResponseBase]
Refuses = Callable[..., None]


@overload
def idempotent(handler: Handler, /) -> Handler: ...
@overload
def idempotent(
    *,
    body: type[serializers.BaseSerializer[Any]] | None = ...,
    mode: Mode | Phases = ...,
    redact: tuple[str, ...] = ...,
    refuses: Callable[..., None] | None = ...,
) -> Callable[[Handler], Handler]: ...
def idempotent(
    handler: Handler | None = None,
    /,
    *,
    body: type[serializers.BaseSerializer[Any]] | None = None,
    mode: Mode | Phases = ATOMIC,
    redact: tuple[str, ...] = (),
    refuses: Callable[..., None] | None = None,
) -> Any:
    """Make a handler method's effect happen once per Idempotency-Key (or Idempotency-Token).

    Written `@idempotent` or `@idempotent(…)`, on a method of an APIView or ViewSet. By the time it runs, DRF has
    authenticated, throttled and checked permissions; `body` is validated before the key is looked at, so a 400
    never burns a key. A parameter named `call` gets the `KeyedCall`.

    Args:
        body: serializer class of the request; its `validated_data` becomes the handler's `data` argument.
        mode: see `idempotency.modes`; or the `Phases` that the handler responds with.
        redact: JSON members whose values are masked before the answer is stored; the first caller gets them.
        refuses: for many refusals at once: called like the handler, before the key is claimed and with no
            transaction open. A refusal that it raises is stored and replayed like the handler's own, at less cost;
            where it raises none, the handler decides. It must change nothing that counts. Atomic mode only.

    Raises:
        TypeError: `refuses` in another mode; or this is no method: the message says what to write instead.
    """
    if refuses is not None and mode is not ATOMIC:
        raise TypeError("A call whose refusal comes before its claim must be atomic.")
    policy = Policy(mode=mode, redact=redact, refuses_early=refuses is not None)

    def decorate(handler: Handler) -> Handler:
        refuse_wrong_use(handler)
        refuse_functions(handler)
        keyed = _keyed_method(handler, policy, body, refuses)
        mark_keyed(keyed, mode)
        return keyed

    return decorate if handler is None else decorate(handler)


def _keyed_method(handler: Handler, policy: Policy, body: Any = None, refuses: Refuses | None = None) -> Handler:
    """Build the keyed form of a handler method."""
    given = with_call(handler, request_at=1)

    @wraps(handler)
    def wrapper(view: APIView, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        plain = request._request
        if plain.method in SAFE_METHODS:
            policy.pass_by(plain)
            with transaction_of_requests():
                return given(view, request, *args, **kwargs)
        _read_body(request, plain)
        if body is not None:
            serializer = body(data=request.data, context={"request": request, "view": view})
            serializer.is_valid(raise_exception=True)
            kwargs["data"] = serializer.validated_data
        if policy.joins(plain):
            return given(view, request, *args, **kwargs)
        with _refusing_as_the_view():
            exchange = policy.open(plain, caller=request)

        def answer() -> HttpResponseBase:
            try:
                response: HttpResponseBase = given(view, request, *args, **kwargs)
            except (exceptions.APIException, Problem, *DJANGOS_REFUSALS) as exc:
                response = _refusal(view, plain, exc)
            finalized: HttpResponseBase = view.finalize_response(request, response, *args, **kwargs)  # type: ignore[arg-type]
            return finalized

        if refuses is None:
            return execute(exchange, answer)
        return execute(exchange, answer, refuse=lambda: _refused(refuses, view, request, *args, **kwargs))

    return wrapper


def _read_body(request: Request, plain: HttpRequest) -> None:
    """Read the body once, so that both fingerprint and parser see it; not a bare upload, which may be large.

    Raises:
        APIException: the body cannot be read; the key is not looked at.
    """
    if plain.content_type == "multipart/form-data" or plain.body:
        _ = request.data


@contextmanager
def _refusing_as_the_view() -> Iterator[None]:
    """Let DRF answer an anonymous caller: 401 with the view's `WWW-Authenticate`, or 403 where it has none."""
    try:
        yield
    except AnonymousRefused:
        raise exceptions.NotAuthenticated from None


def _refused(
    refuses: Callable[..., None], view: APIView, request: Request, *args: Any, **kwargs: Any
) -> HttpResponseBase | None:
    """Return the answer to the refusal that `refuses` raises, if such an answer is stored."""
    try:
        refuses(view, request, *args, **kwargs)
    except (exceptions.APIException, Problem, *DJANGOS_REFUSALS) as exc:
        response = _refusal(view, request._request, exc)
        if verdict_on(response.status_code) is Verdict.REFUSAL:
            finalized: HttpResponseBase = view.finalize_response(request, response, *args, **kwargs)  # type: ignore[arg-type]
            return finalized
    return None


def _refusal(view: APIView, plain: HttpRequest, error: Exception) -> HttpResponseBase:
    """Answer as the project's `EXCEPTION_HANDLER` does; the rest as Django does."""
    try:
        return view.handle_exception(error)
    except DJANGOS_REFUSALS as left:
        return refusal_of_django(plain, left, show_problem)


class IdempotentMixin:
    """Keyed handlers of an APIView or ViewSet, by name; and the view leaves ATOMIC_REQUESTS.

        class Orders(IdempotentMixin, CreateModelMixin, GenericViewSet):
            idempotent_handlers = {"create": ATOMIC}

    Attributes:
        idempotent_handlers: name of the method (``post``, ``create``, an action) → its mode.
    """

    idempotent_handlers: Mapping[str, Mode | Phases] = {"post": ATOMIC}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, mode in cls.idempotent_handlers.items():
            handler = getattr(cls, name, None)
            if handler is not None and not hasattr(handler, "idempotency_mode"):
                setattr(cls, name, idempotent(mode=mode)(handler))

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Build the view outside ATOMIC_REQUESTS."""
        return outside_atomic_requests(super().as_view(*args, **kwargs))  # type: ignore[misc]


def keyed_view(view: Any, policy: Policy) -> Any:
    """Build the keyed form of a view of REST framework; None where its class leaves no handler to key."""
    handlers = getattr(view, "actions", None) or {name: name for name in view.cls.http_method_names}
    names = {handler for method, handler in handlers.items() if method.upper() not in SAFE_METHODS}
    cls = keyed_subclass(view.cls, names, lambda handler: _keyed_method(handler, policy))
    if cls is None:
        return None
    actions = (view.actions,) if hasattr(view, "actions") else ()
    return cls.as_view(*actions, **view.initkwargs)


def exception_handler(exc: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Answer every error as RFC 9457 `application/problem+json`; None for a fault of the program (500).

    A problem is JSON, whatever the view renders and the caller accepts.
    """
    problem = problem_of(exc) or _problem_of_drf(exc)
    return None if problem is None else problem_response(problem, context["request"])


_CODES = {
    400: "malformed",
    401: "not_authenticated",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    415: "unsupported_media_type",
    429: "throttled",
}


def _problem_of_drf(exc: Exception) -> Problem | None:
    if isinstance(exc, Http404):
        return Problem(404, "not_found", "There is no such resource.")
    if isinstance(exc, PermissionDenied):
        return Problem(403, "permission_denied", "You may not do this.")
    if isinstance(exc, exceptions.ValidationError):
        return Problem(400, "validation_failed", "The request body is not valid; see errors.", errors=exc.detail)
    if isinstance(exc, MALFORMED):
        return malformed()
    if not isinstance(exc, exceptions.APIException):
        return None
    headers = {}
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if (wait := getattr(exc, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, int(wait)))  # whole seconds, rounded up by DRF
    return Problem(
        exc.status_code,
        _CODES.get(exc.status_code, "refused" if exc.status_code < 500 else "unavailable"),
        str(exc.detail),
        headers=headers,
    )


class TokenSerializer(serializers.Serializer[tokens.Token]):
    """One-time token, as the API shows it."""

    token = serializers.CharField()
    expires_at = serializers.DateTimeField()


@not_keyed
class TokenList(APIView):
    """Resource of one-time tokens: `POST` issues one to the caller."""

    @extend_schema(request=None, responses={201: TokenSerializer}, summary="Issue a one-time token")
    def post(self, request: Request) -> Response:
        with _refusing_as_the_view():
            token = tokens.issue(caller_of(request))
        return Response(TokenSerializer(token).data, status=status.HTTP_201_CREATED)
