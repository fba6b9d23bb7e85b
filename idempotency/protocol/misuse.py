"""Refusal of a decorator in the wrong place, where it is written, with what to write instead."""

from inspect import Parameter, signature
from typing import Any


def refuse_wrong_use(view: Any) -> None:
    """Refuse all but functions of plain Django and methods of REST framework, as far as import shows.

    Raises:
        TypeError: with what to write instead.
    """
    name = getattr(view, "__qualname__", repr(view))
    if hasattr(view, "cls"):  # it authenticates inside: here all callers would be guests
        raise TypeError(
            f"{name} is a view of Django REST framework. Write it as a class, decorate the class's method with "
            "idempotency.drf.idempotent, or let the class inherit from idempotency.drf.IdempotentMixin."
        )
    if hasattr(view, "_ninja_operation"):
        refuse_ninja(view._ninja_operation)
    if isinstance(view, type):
        raise TypeError(
            f"{name} is a class. Decorate the method that changes something: of a class of Django's with "
            "method_decorator(idempotent, name='post'), of Django REST framework with idempotency.drf.idempotent."
        )
    if not callable(view):
        raise TypeError(f"@idempotent was given {view!r} in the place of a view. Write @idempotent(mode=…).")


def refuse_ninja(operation: Any) -> None:
    """Refuse an operation of Django Ninja, which answers with values and not with responses.

    Ninja calls what a view lists as `_ninja_contribute_to_operation`, and marks a view that it knows with
    `_ninja_operation`: the only two ways to meet it at import, in either order of the decorators.
    """
    raise TypeError(
        f"{operation.view_func.__qualname__} is an operation of Django Ninja, for which there is no @idempotent. "
        "Write it as a view of Django (idempotency.views) or of Django REST framework (idempotency.drf)."
    )


def refuse_functions(handler: Any) -> None:
    """Refuse a function view; a function with a place for the view before its request may become a method.

    Raises:
        TypeError: with what to write instead.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    defined_in = name.rpartition(".")[0]
    if defined_in and not defined_in.endswith("<locals>"):
        return
    parameters = list(signature(handler).parameters.values())
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters[:2]):
        return  # a decorator's wrapper: only the first call can show
    if len(parameters) < 2 or "request" not in parameters[1].name:
        raise TypeError(
            f"{name} is a function, and idempotency.drf.idempotent decorates a class's method, also in place of "
            "@api_view: write `class …(APIView):` with `@idempotent` on its `def post(self, "
            "request)`. For a view of plain Django, use idempotency.views.idempotent."
        )


def mark_keyed(handler: Any, mode: Any) -> None:
    """Let system checks and frameworks see that this handler is keyed.

    Raises:
        TypeError: it is under `@not_keyed`.
    """
    if getattr(handler, "idempotency_exempt", False):
        name = getattr(handler, "__qualname__", repr(handler))
        raise TypeError(f"{name} has both @idempotent and @not_keyed. Remove one of them.")
    handler.idempotency_mode = mode
    handler._ninja_contribute_to_operation = [refuse_ninja]


def mark_not_keyed(view: Any) -> None:
    """Exempt a view or class from the setting KEYED.

    Raises:
        TypeError: it is keyed by its decorator.
    """
    handlers = [getattr(view, name, None) for name in dir(view)] if isinstance(view, type) else [view]
    if any(hasattr(handler, "idempotency_mode") for handler in handlers):
        name = getattr(view, "__qualname__", repr(view))
        raise TypeError(f"{name} has both @idempotent and @not_keyed. Remove one of them.")
    view.idempotency_exempt = True
