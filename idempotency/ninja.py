"""Door for Django Ninja: keyed operations, sync and async, and their OpenAPI schema.

    @api.post("/orders", response={201: OrderOut})
    @idempotent
    def place_order(request, order: OrderIn, call: KeyedCall): ...

Ninja authenticates, throttles and validates first; what the function returns is stored as Ninja renders it.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Signature, unwrap
from typing import Any, Unpack, overload

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency.extras import needed

with needed("ninja", by="idempotency.ninja"):
    from ninja.decorators import decorate_view

from ninja.operation import Operation, PathView
from ninja.signature.utils import get_typed_signature
from ninja.utils import contribute_operation_callback

from idempotency.call import NAME, with_call
from idempotency.conf import Config, parsed
from idempotency.errors import PROBLEM_JSON, Problem
from idempotency.protocol.execute import Rewind
from idempotency.protocol.misuse import mark_keyed, refuse_wrong_use
from idempotency.protocol.options import Options
from idempotency.protocol.policy import Policy
from idempotency.protocol.problems import problem_of
from idempotency.request.keys import SAFE_METHODS
from idempotency.views import REFUSALS, View, answer, answer_async, is_marked, refusal, unkeyed_block

PROBLEMS = {
    400: "The key is missing, malformed or weak.",
    409: "The first call with this key is still running; retry with the same key.",
    410: "Done before, and the stored answer is gone.",
    422: "The key was used with another request.",
}


@overload
def idempotent(view: View, /) -> View: ...
@overload
def idempotent(**options: Unpack[Options]) -> Callable[[View], View]: ...
def idempotent(view: View | None = None, /, **options: Unpack[Options]) -> Any:
    """Make an operation's effect happen once per key, directly on its function.

    A parameter named `call` gets the `KeyedCall`, and is none of the operation's own.

    Args:
        options: see `idempotency.protocol.policy.Policy`.

    Raises:
        TypeError: this is no function of an operation, or an option is wrong; the message says what to write.
    """
    policy = Policy.of(options)

    def decorate(view: View) -> View:
        refuse_wrong_use(view)
        build = _keyed_async if iscoroutinefunction(view) else _keyed_sync
        keyed: View = build(view, with_call(view), policy)
        keyed.__signature__ = _without_call(view)  # type: ignore[attr-defined]
        mark_keyed(keyed, policy, door="ninja")
        contribute_operation_callback(keyed, lambda operation: _describe(operation, policy))
        decorate_view(_noting)(keyed)
        return keyed

    return decorate if view is None else decorate(view)


def refuse_unkeyed(view: Any) -> None:
    """Refuse a view of Ninja with an unsafe operation that no decorator keys or exempts.

    Raises:
        TypeError: it knows its caller inside only, so ``KEYED`` cannot key it.
    """
    for operation in operations_of(view):
        if not SAFE_METHODS.issuperset(operation.methods) and not is_marked(operation.view_func):
            raise TypeError(
                f"{operation.view_func.__qualname__} is an operation of Django Ninja, which knows its caller "
                "inside only. Put idempotency.ninja.idempotent on it, below @api.post."
            )


def operations_of(view: Any) -> list[Operation]:
    """List the operations of a view of Ninja; none for its pages."""
    cells = [cell.cell_contents for cell in getattr(view, "__closure__", None) or ()]
    return [operation for held in cells if isinstance(held, PathView) for operation in held.operations]


def _keyed_sync(view: View, given: View, policy: Policy) -> View:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if (block := unkeyed_block(request, policy)) is not None:
            with block:
                return given(request, *args, **kwargs)
        operation, rewind = _operation_of(request, view), Rewind(request)

        def handler() -> HttpResponseBase:
            try:
                if not rewind.note_first_run():
                    _resolve_again(operation, request, kwargs)
                return _response(operation, request, given(request, *args, **kwargs), kwargs)
            except Exception as error:
                return _refusal(operation, request, error, policy)

        try:
            return answer(request, policy, handler, rewind=rewind)
        except Exception as error:
            return _outage(request, error, policy)

    return wrapper


def _keyed_async(view: View, given: View, policy: Policy) -> View:
    @wraps(view)
    async def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if unkeyed_block(request, policy) is not None:  # Django opens no transaction around an async view
            return await given(request, *args, **kwargs)
        operation, rewind = _operation_of(request, view), Rewind(request)

        async def handler() -> HttpResponseBase:
            try:
                if not rewind.note_first_run():
                    _resolve_again(operation, request, kwargs)
                return _response(operation, request, await given(request, *args, **kwargs), kwargs)
            except Exception as error:
                return await sync_to_async(_refusal)(operation, request, error, policy)

        try:
            return await answer_async(request, policy, handler, rewind=rewind)
        except Exception as error:
            return await sync_to_async(_outage)(request, error, policy)

    return wrapper


def _refusal(operation: Operation, request: HttpRequest, error: Exception, policy: Policy) -> HttpResponseBase:
    """Answer as the API's exception handlers do, else as Django. Raise a program's fault."""
    if isinstance(error, Problem):
        return policy.show(request, error)
    if problem_of(error) is not None:
        raise error  # the database is away: nothing is to be stored
    try:
        return operation.api.on_exception(request, error)
    except REFUSALS as left:
        return refusal(request, left, policy)


def _outage(request: HttpRequest, error: Exception, policy: Policy) -> HttpResponseBase:
    """Answer what is no fault of the program; in DEBUG, Ninja would make a traceback of it."""
    problem = problem_of(error)
    if problem is None:
        raise error
    return policy.show(request, problem)


def _response(operation: Operation, request: HttpRequest, result: Any, kwargs: dict[str, Any]) -> HttpResponseBase:
    """Render a result by the operation's response schema. Ninja has no public way to."""
    argument = operation.signature.response_arg
    response = kwargs[argument] if argument else operation.api.create_temporal_response(request)
    return operation._result_to_response(request, result, response)


def _resolve_again(operation: Operation, request: Any, kwargs: dict[str, Any]) -> None:
    """Make the arguments again, as Ninja did: the run before may have changed them."""
    made = {operation.signature.response_arg: operation.api.create_temporal_response(request)}
    for model in operation.models:
        made.update(model.resolve(request, operation.api, request.idempotency_path))
    kwargs.update({name: made[name] for name in kwargs if name in made})


def _noting(run: Any) -> Any:
    """Build an operation's `run` that notes both on the request: routers share functions."""
    operation = unwrap(run).__self__

    @wraps(run)
    def noted(request: Any, *args: Any, **kwargs: Any) -> Any:
        request.idempotency_operation, request.idempotency_path = operation, kwargs
        return run(request, *args, **kwargs)

    return noted


def _operation_of(request: Any, view: View) -> Operation:
    operation: Operation | None = getattr(request, "idempotency_operation", None)
    if operation is None:
        raise TypeError(
            f"{view.__qualname__} was called by no operation of Django Ninja. Elsewhere use "
            "idempotency.views.idempotent or idempotency.drf.idempotent."
        )
    return operation


def _without_call(view: View) -> Signature:
    """Return the parameters that Ninja fills, resolved where the function stands."""
    found = get_typed_signature(view)
    return found.replace(parameters=[one for one in found.parameters.values() if one.name != NAME])


def _describe(operation: Operation, policy: Policy) -> None:
    """Add header and problems to the OpenAPI schema; TypeError for an operation that streams."""
    if getattr(operation, "stream_format", None) is not None:
        raise TypeError(
            f"{operation.view_func.__qualname__} streams its answer, which cannot be stored and replayed."
        )
    settings = parsed() or Config()
    required = settings.required if policy.required is None else policy.required
    extra = operation.openapi_extra or {}
    header = {
        "in": "header",
        "name": policy.header or settings.header,
        "required": required is True and policy.window is None,
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "description": "A fresh random key per intent, and the same key with every retry of it.",
    }
    content = {PROBLEM_JSON: {"schema": {"type": "object"}}}
    problems = {status: {"description": text, "content": content} for status, text in PROBLEMS.items()}
    operation.openapi_extra = {
        **extra,
        "parameters": [*extra.get("parameters", []), header],
        "responses": {**problems, **extra.get("responses", {})},
    }
