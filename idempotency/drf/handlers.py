"""Keyed handlers of Django REST framework: methods, functions below `@api_view`, a mixin."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction
from django.http.response import HttpResponseBase
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from idempotency.call import first_missing, with_call
from idempotency.errors import AnonymousRefused, Problem, ResultExpired
from idempotency.modes import ATOMIC, Mode
from idempotency.protocol.execute import Rewind, execute, replay
from idempotency.protocol.misuse import mark_keyed, refuse_wrong_use
from idempotency.protocol.options import Options
from idempotency.protocol.policy import Policy
from idempotency.protocol.recovery import Phases
from idempotency.request.keys import FORMS, SAFE_METHODS
from idempotency.views import (
    REFUSALS,
    is_marked,
    keyed_subclass,
    outside_atomic_requests,
    refusal,
    transaction_of_requests,
)

R = TypeVar("R", bound=HttpResponseBase)  # a method that overrides a generic view's keeps its type
Handler = Callable[..., HttpResponseBase]


@overload
def idempotent(handler: Callable[..., R], /) -> Callable[..., R]: ...
@overload
def idempotent(
    *,
    body: type[serializers.BaseSerializer[Any]] | None = ...,
    **options: Unpack[Options],
) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
def idempotent(
    handler: Handler | None = None,
    /,
    *,
    body: type[serializers.BaseSerializer[Any]] | None = None,
    **options: Unpack[Options],
) -> Any:
    """Make a handler's effect happen once per Idempotency-Key (or Idempotency-Token).

    Written `@idempotent` or `@idempotent(…)`, on a method of an APIView or ViewSet, or on a function below
    `@api_view`. By the time it runs, DRF has authenticated, throttled and checked permissions; `body` is validated
    before the key is claimed, so a 400 never burns a key. A parameter named `call` gets the `KeyedCall`.

    Args:
        body: serializer class of the request; its `validated_data` becomes the handler's `data` argument.
        options: see `idempotency.protocol.policy.Policy`.

    Raises:
        TypeError: a wrong option, or no handler; the message says what to write.
    """
    policy = Policy.of(options)

    def decorate(handler: Handler) -> Handler:
        refuse_wrong_use(handler)
        if body is not None and first_missing(["data"], signature(handler)) is not None:
            raise TypeError(f"{handler.__qualname__} has body=, and no argument `data` for what it validates.")
        keyed = _keyed_handler(handler, policy, body)
        mark_keyed(keyed, policy, door="drf")
        return keyed

    return decorate if handler is None else decorate(handler)


def _keyed_handler(handler: Handler, policy: Policy, body: Any = None) -> Handler:
    """Build the keyed form of a method or function of REST framework; TypeError if it is async."""
    if iscoroutinefunction(handler):
        raise TypeError(
            f"{handler.__qualname__} is async: REST framework does not call it, and under adrf it cannot be keyed."
            " Write it sync."
        )
    given = tuple(with_call(handler, request_at=position) for position in (0, 1))
    is_phased = policy.mode is not ATOMIC

    @wraps(handler)
    def wrapper(*args: Any, **kwargs: Any) -> HttpResponseBase:
        position = _position_of_request(args, handler)
        run = _Run(given[position], args, kwargs, args[position], position, policy, body)
        plain = run.request._request
        if plain.method in SAFE_METHODS:
            policy.pass_by(plain)
            with transaction_of_requests():
                return run.bare()
        # any other body is parsed for the handler alone: a replay needs its bytes, and a form's fields. A phased
        # claim is committed, so a body that cannot be read must be refused before it
        if plain.content_type == "multipart/form-data" or (
            plain.body and (is_phased or plain.content_type in FORMS)
        ):
            _ = run.request.data
        if policy.joins(plain):
            run.validate()
            return run.bare()
        try:
            try:
                run.validate()
            except exceptions.ValidationError as refused:
                return run.answered_before(refused)
            return execute(policy.open(plain, caller=run.request), run.answer, rewind=run.rewind)
        except AnonymousRefused:
            raise exceptions.NotAuthenticated from None  # 401 with the view's `WWW-Authenticate`, else 403
        except Problem as problem:
            _ = run.request.data  # a body that cannot be read is refused before any problem of its key
            if policy.on_problem is None:
                raise  # the view's EXCEPTION_HANDLER shows it
            return policy.show(run.request, problem)

    return wrapper


@dataclass(slots=True)
class _Run:
    """Handler with the arguments that REST framework calls it with, the request at `position`."""

    handler: Handler
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    request: Request
    position: int
    policy: Policy
    body: Any
    _rewind: Rewind | None = None  # a replay needs none

    @property
    def view(self) -> APIView:
        view: APIView = self.args[0] if self.position else self.request.parser_context["view"]
        return view

    def bare(self) -> HttpResponseBase:
        return self.handler(*self.args, **self.kwargs)

    def answer(self) -> HttpResponseBase:
        """Call the handler; a refusal that it or the body's parser raises is its answer."""
        try:
            if self._rewind is None:
                self._rewind = Rewind(self.request._request, self.view, self.request)
            if not self._rewind.note_first_run():
                self._read_again()
            _ = self.request.data
            response = self.bare()
        except (exceptions.APIException, *REFUSALS) as error:
            response = self._shown(error)
        return self._finalized(response)

    def rewind(self) -> bool:
        """Bring back what the first run found; False where it cannot run twice."""
        return self._rewind is not None and self._rewind()

    def validate(self) -> None:
        """Make the handler's argument `data` of the body, where its serializer is given."""
        if self.body is not None:
            serializer = self.body(data=self.request.data, context={"request": self.request, "view": self.view})
            serializer.is_valid(raise_exception=True)
            self.kwargs["data"] = serializer.validated_data

    def answered_before(self, refused: exceptions.ValidationError) -> HttpResponseBase:
        """Return the first call's answer before the checks that its own effect would fail.

        Raises:
            ValidationError: `refused`, before any problem of the key.
            ResultExpired: it was answered, and the answer is stored no more.
        """
        try:
            answer = replay(self.policy.open(self.request._request, caller=self.request))
        except Problem as problem:
            if isinstance(problem, ResultExpired):
                raise
            answer = None
        if answer is None:
            raise refused
        return answer

    def _read_again(self) -> None:
        """Forget the parsed body, which the run before may have changed; the caller stays."""
        unread = self.view.initialize_request(self.request._request, *self.view.args, **self.view.kwargs)
        unread.user, unread.auth = self.request.user, self.request.auth
        vars(self.request).update(vars(unread))
        self.request.parser_context["request"] = self.request
        self.validate()

    def _shown(self, error: Exception) -> HttpResponseBase:
        """Answer as `on_problem` or the project's `EXCEPTION_HANDLER` does, else as Django."""
        if isinstance(error, Problem) and self.policy.on_problem is not None:
            return self.policy.show(self.request, error)
        try:
            return self.view.handle_exception(error)
        except Problem as left:
            return self.policy.show(self.request, left)
        except REFUSALS as left:
            return refusal(self.request._request, left, self.policy)

    def _finalized(self, response: HttpResponseBase) -> HttpResponseBase:
        view: Any = self.view  # its type knows no answers of Django's own
        finalized: HttpResponseBase = view.finalize_response(
            self.request, response, *self.args[self.position + 1 :], **self.kwargs
        )
        return finalized


def _position_of_request(args: tuple[Any, ...], handler: Handler) -> int:
    """Return 0 for a function below `@api_view`, 1 for a method; TypeError for any other."""
    for position in (1, 0):
        if len(args) > position and isinstance(args[position], Request):
            return position
    raise TypeError(
        f"{handler.__qualname__} was called with a {type(args[0]).__name__}. idempotency.drf.idempotent decorates "
        "a method of an APIView, or a function below @api_view. For a view of plain Django, use "
        "idempotency.views.idempotent."
    )


class IdempotentMixin:
    """Keyed handlers of an APIView or ViewSet, by name; and the view leaves ATOMIC_REQUESTS.

        class Orders(IdempotentMixin, CreateModelMixin, GenericViewSet):
            idempotent_handlers = {"create": Mode.ATOMIC}

    Attributes:
        idempotent_handlers: name of the method (``post``, ``create``, an action) → its mode, or a dict of the
            options of `idempotent`; unless given `post`, or `create` of a ViewSet.
    """

    idempotent_handlers: Mapping[str, Mode | Phases | Mapping[str, Any]] = {"post": ATOMIC}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {APIView, ViewSetMixin}.intersection(cls.__mro__[: cls.__mro__.index(IdempotentMixin)]):
            raise TypeError(f"{cls.__qualname__}: write IdempotentMixin before the view it inherits from.")
        if not isinstance(cls.idempotent_handlers, Mapping):
            raise TypeError(f"{cls.__qualname__}: write idempotent_handlers = {{'create': Mode.ATOMIC}}, a dict.")
        cls._key_handlers()

    @classmethod
    def _key_handlers(cls) -> None:
        for name, chosen in cls.idempotent_handlers.items():
            handler = getattr(cls, name, None)
            if handler is not None and not hasattr(handler, "idempotency_mode"):
                options: Any = chosen if isinstance(chosen, Mapping) else {"mode": chosen}
                setattr(cls, name, idempotent(**options)(handler))

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Build the view outside ATOMIC_REQUESTS.

        Raises:
            TypeError: it has not one of its handlers, and would run unkeyed.
        """
        is_default = cls.idempotent_handlers is IdempotentMixin.idempotent_handlers
        if is_default and issubclass(cls, ViewSetMixin) and hasattr(cls, "create") and not hasattr(cls, "post"):
            cls.idempotent_handlers = {"create": ATOMIC}  # not before: subclasses of a base may name others
            cls._key_handlers()
        for name in cls.idempotent_handlers:
            if not hasattr(cls, name):
                raise TypeError(
                    f"{cls.__qualname__} has no {name}, which idempotent_handlers keys. Name its handlers, such "
                    "as idempotent_handlers = {'create': Mode.ATOMIC}."
                )
        return outside_atomic_requests(super().as_view(*args, **kwargs))  # type: ignore[misc]


def keyed_view(view: Any, policy: Policy) -> Any:
    """Build the keyed form of a view; None where its class leaves no handler to key."""
    handlers = getattr(view, "actions", None) or {name: name for name in view.cls.http_method_names}
    names = {handler for method, handler in handlers.items() if method.upper() not in SAFE_METHODS}
    names = {name for name in names if not is_marked(function_of(getattr(view.cls, name, None)))}
    cls = keyed_subclass(view.cls, names, lambda handler: _keyed_handler(handler, policy))
    if cls is None:
        return None
    actions = (view.actions,) if hasattr(view, "actions") else ()
    return cls.as_view(*actions, **view.initkwargs)


def function_of(handler: Any) -> Any:
    """Return the function that `@api_view` made this handler of; any other handler as it is."""
    if not isinstance(handler, FunctionType) or handler.__module__ != "rest_framework.decorators":
        return handler
    held = dict(zip(handler.__code__.co_freevars, handler.__closure__ or (), strict=True))
    return held["func"].cell_contents if "func" in held else handler
