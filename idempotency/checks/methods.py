"""System check of keyed methods that no unsafe call reaches or that a subclass overrides."""

from collections.abc import Iterator
from inspect import Parameter, signature, unwrap
from typing import Any

from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as Advice

from idempotency.checks.registry import register
from idempotency.checks.views import all_views, class_of, methods_of, name_of
from idempotency.middleware import is_named, is_of_ninja
from idempotency.request.keys import SAFE_METHODS
from idempotency.views import is_marked


@register(Tags.urls)
def check_keyed_methods(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that `@idempotent` in a class is where it keys, and that no subclass loses it."""
    messages: dict[str, CheckMessage] = {}
    for path, view in all_views():
        cls, view_name = class_of(view), name_of(view)
        useless = _safe_operations(view) if cls is None else _without_effect(view, cls)
        lost = () if cls is None or is_named(path) else _lost(view, cls)
        for name in useless:
            messages[f"E022 {view_name} {name}"] = Error(
                f"{view_name} has @idempotent on {name}, where it keys nothing: no unsafe method calls it with "
                "a request. Put it on the method that changes something, such as name='post' of method_decorator.",
                id="idempotency.E022",
            )
        for name, base in lost:
            messages[f"W009 {view_name} {name}"] = Advice(
                f"{view_name} overrides {name} of {base.__qualname__}, which is under @idempotent, without it: "
                "each copy of a call counts. Put @idempotent on it too, or @not_keyed.",
                id="idempotency.W009",
            )
    return [messages[key] for key in sorted(messages)]


def _safe_operations(view: Any) -> Iterator[str]:
    if is_of_ninja(view):
        from idempotency.ninja import operations_of  # noqa: PLC0415  only where it is installed

        for operation in operations_of(view):
            if hasattr(operation.view_func, "idempotency_mode") and SAFE_METHODS.issuperset(operation.methods):
                yield operation.methods[0].lower()


def _without_effect(view: Any, cls: Any) -> Iterator[str]:
    """Yield the keyed methods that are no handler, and get no request from one."""
    safe = {name.lower() for name in SAFE_METHODS}
    actions = getattr(view, "actions", None) or {}
    names = {"dispatch", *getattr(cls, "http_method_names", ()), *actions.values()} - safe
    methods = methods_of(view, cls)
    handlers = [methods.get(name) for name in names]
    for name, method in methods.items():
        if not hasattr(method, "idempotency_mode") or method in handlers:
            continue
        if name in safe or not _may_get_a_request(method):
            yield name


def _may_get_a_request(method: Any) -> bool:
    """Check if the first argument after `self` is a request, or may be anything."""
    taken = [*signature(method).parameters.values()][:2]
    takes_any = any(each.kind is Parameter.VAR_POSITIONAL for each in taken)
    return takes_any or (len(taken) > 1 and "req" in taken[1].name)


def _lost(view: Any, cls: Any) -> Iterator[tuple[str, Any]]:
    """Yield the methods that a base class keys and that are not keyed here, with that class."""
    if is_marked(view) or getattr(cls, "idempotency_exempt", False):
        return
    actions = getattr(view, "actions", None)
    for base in cls.__mro__[1:]:
        for name, keyed in vars(base).items():
            is_routed = actions is None or name in actions.values()
            if hasattr(keyed, "idempotency_mode") and is_routed and not _is_still_keyed(cls, name):
                yield name, base


def _is_still_keyed(cls: Any, name: str) -> bool:
    method = getattr(cls, name)
    if method is None or is_marked(method):
        return True
    code = getattr(unwrap(method), "__code__", None)
    return code is not None and {"super", name} <= {*code.co_names}  # around the keyed one, as one that authorises
