"""Refusal of a decorator in the wrong place, with what to write instead."""

from inspect import signature, unwrap
from typing import Any

from idempotency.request.keys import SAFE_METHODS

AUTHORISING = "django.contrib.auth.decorators"  # module of login_required and its like


def refuse_wrong_use(view: Any) -> None:
    """Refuse all but Django's functions and REST framework's methods, as far as import shows."""
    name = getattr(view, "__qualname__", repr(view))
    if hasattr(view, "cls"):  # it authenticates inside: here all callers would be guests
        raise TypeError(
            f"{name} is a view of Django REST framework. Put idempotency.drf.idempotent on the function below "
            "@api_view or on the class's method, or let the class inherit from idempotency.drf.IdempotentMixin."
        )
    # `method_decorator` gives a method of an instance, at each call
    if hasattr(getattr(getattr(view, "func", None), "__self__", None), "perform_authentication"):
        raise TypeError(
            f"{name} is a method of Django REST framework under method_decorator, and has not authenticated yet."
            " Put idempotency.drf.idempotent on the method that changes something, such as post."
        )
    if (
        getattr(view, "__name__", "").upper() in SAFE_METHODS
        and next(iter(signature(view).parameters), "") == "self"
    ):
        raise TypeError(f"{name} answers a method that changes nothing, and no key is asked for. Decorate post.")
    if hasattr(view, "_ninja_operation"):
        refuse_ninja(view._ninja_operation)
    if isinstance(view, type):
        raise TypeError(
            f"{name} is a class. Decorate the method that changes something: of a class of Django's with "
            "method_decorator(idempotent, name='post'), of Django REST framework with idempotency.drf.idempotent."
        )
    if _authorises(unwrap(view, stop=_authorises)):
        raise TypeError(
            f"{name}: @idempotent stands above a decorator that authorises, which a replay would not ask again."
            " Put @idempotent below it, next to the function."
        )
    if not callable(view):
        raise TypeError(f"@idempotent was given {view!r} in the place of a view. Write @idempotent(mode=…).")


def _authorises(function: Any) -> bool:
    """Return whether it is a wrapper of `login_required` or its like."""
    return getattr(function, "__globals__", {}).get("__name__") == AUTHORISING


def refuse_ninja(operation: Any) -> None:
    """Refuse an operation of Django Ninja at another door than its own, or above its own.

    Ninja calls what a view lists as `_ninja_contribute_to_operation`, and marks a view that it knows with
    `_ninja_operation`: the only two ways to meet it at import, in either order of the decorators.
    """
    raise TypeError(
        f"{operation.view_func.__qualname__} is an operation of Django Ninja. Put idempotency.ninja.idempotent "
        "directly on its function, below @api.post."
    )


def mark_keyed(handler: Any, policy: Any, *, door: str = "views") -> None:
    """Let system checks and frameworks see that this handler is keyed, and how.

    Args:
        door: last part of the name of its module.

    Raises:
        TypeError: it is under `@not_keyed`.
    """
    if getattr(handler, "idempotency_exempt", False):
        name = getattr(handler, "__qualname__", repr(handler))
        raise TypeError(f"{name} has both @idempotent and @not_keyed. Remove one of them.")
    handler.idempotency_mode = policy.mode
    handler.idempotency_policy = policy
    handler.idempotency_door = door
    if door != "ninja":
        handler._ninja_contribute_to_operation = [refuse_ninja]


def mark_not_keyed(view: Any) -> None:
    """Exempt a view or class from KEYED; TypeError if its decorator keys it, or it is no view."""
    if not callable(view):
        raise TypeError(f"@not_keyed was given {view!r} in the place of a view. Write @not_keyed above a view.")
    handlers = [getattr(view, name, None) for name in dir(view)] if isinstance(view, type) else [view]
    if any(hasattr(handler, "idempotency_mode") for handler in handlers):
        name = getattr(view, "__qualname__", repr(view))
        raise TypeError(f"{name} has both @idempotent and @not_keyed. Remove one of them.")
    view.idempotency_exempt = True
