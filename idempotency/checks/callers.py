"""System checks of the callers of keyed views."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags
from django.core.checks import Warning as Advice

from idempotency.checks.registry import register
from idempotency.checks.settings import AUTHENTICATION, MIDDLEWARE, SESSIONS, place
from idempotency.checks.views import all_views, class_of, is_decorated, name_of, why_not
from idempotency.conf import parsed
from idempotency.middleware import is_named, is_of_ninja, keyed_form


@register(Tags.urls)
def check_callers(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that keyed views can identify their callers."""
    if _knows_callers():
        return
    for view in _keyed_views():
        if not _authenticates(view):
            yield Advice(
                f"Nothing names the callers of {name_of(view)}: neither AuthenticationMiddleware nor "
                f"SessionMiddleware stands before {MIDDLEWARE!r}, and the view authenticates nobody. Add one of "
                "them, or name a function in IDEMPOTENCY['PRINCIPAL'].",
                id="idempotency.W001",
            )


@register(Tags.security, deploy=True)
def check_anonymous_callers(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Ask before a deployment if anonymous callers are meant to come."""
    config = parsed()
    if config is None or config.anonymous != "accept":
        return
    known = _knows_callers()
    for view in _keyed_views():
        if _is_open_to_all(view) and (known or _authenticates(view)):  # else W001
            yield Advice(
                f"{name_of(view)} takes keyed calls under AllowAny: a caller without user, request.auth and "
                "session is anonymous, and shares a key with anyone who guesses it, so keys that can be guessed "
                "are refused.",
                hint="Set IDEMPOTENCY['ANONYMOUS'] to 'refuse' to turn them away, name a function in "
                "IDEMPOTENCY['PRINCIPAL'], or silence this if they are meant to come.",
                id="idempotency.W003",
            )


def _keyed_views() -> list[Any]:
    """List keyed views by name; none if a setting names the caller, or E001 or E002 applies."""
    config = parsed()
    if config is None or not config.enabled or config.principal is not None or place() is None:
        return []
    found = {name_of(view): view for path, view in all_views() if _is_keyed(path, view)}
    return [found[name] for name in sorted(found)]


def _knows_callers() -> bool:
    """Check if a middleware before ours names users or sessions."""
    before = settings.MIDDLEWARE[: place() or 0]
    return SESSIONS in before or AUTHENTICATION in before


def _is_keyed(path: str, view: Any) -> bool:
    by_setting = is_named(path) and not why_not(view) and keyed_form(view) is not None
    return by_setting or is_decorated(view)


def _authenticates(view: Any) -> bool:
    """Check if the view itself may name its callers."""
    if is_of_ninja(view):
        from idempotency.ninja import operations_of  # noqa: PLC0415

        return all(operation.auth_callbacks for operation in operations_of(view))
    return bool(_option(view, "authentication_classes"))


def _option(view: Any, name: str) -> list[Any]:
    """Read an option of a DRF view from its address or class; empty for a view of plain Django."""
    return list(getattr(view, "initkwargs", {}).get(name, getattr(class_of(view), name, ())))


def _is_open_to_all(view: Any) -> bool:
    """Check if no permission of a DRF view could turn an anonymous caller away."""
    if not hasattr(view, "cls"):
        return False
    from rest_framework.permissions import AllowAny  # noqa: PLC0415  only where it is installed

    return all(permission is AllowAny for permission in _option(view, "permission_classes"))
