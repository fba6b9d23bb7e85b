"""System checks of the callers of keyed views."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags
from django.core.checks import Warning as Advice
from django.http import HttpRequest
from django.utils.module_loading import import_string

from idempotency.checks.registry import register
from idempotency.checks.settings import AUTHENTICATION, MIDDLEWARE, SESSIONS
from idempotency.checks.views import all_views, class_of, is_marked, is_ninja, name_of, why_not
from idempotency.conf import parsed
from idempotency.middleware import is_named, keyed_form
from idempotency.request.principal import names_nobody


@register(Tags.urls)
def check_callers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that keyed views can identify their callers."""
    if _knows_callers():
        return []
    return [_nobody_is_named(view) for view in _keyed_views() if not _authenticates(view)]


@register(Tags.security, deploy=True)
def check_anonymous_callers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Ask before a deployment if anonymous callers are meant to come; their keys must be hard to guess."""
    config = parsed()
    if config is None or config.anonymous != "accept":
        return []
    known = _knows_callers()
    return [
        _anybody_is_taken(view)
        for view in _keyed_views()
        if _is_open_to_all(view) and (known or _authenticates(view))  # else W001
    ]


@register(Tags.security)
def check_principal(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn of a ``PRINCIPAL`` that gives two guests one name; what names nobody is refused at the call."""
    config = parsed()
    if config is None or not config.enabled or config.principal is None:
        return []
    one, other = (_name_of_guest(config.principal, of) for of in ("one", "other"))
    if one != other or not one or names_nobody(one):
        return []
    return [
        Advice(
            f"IDEMPOTENCY['PRINCIPAL'] ({config.principal}) gives two guests the name {one!r}: with equal keys, "
            "one gets the answer of the other. Return what only one has, such as request.session.session_key.",
            hint="If no guest comes to a keyed view, let the function raise PermissionDenied for one.",
            id="idempotency.W008",
        )
    ]


def _name_of_guest(path: str, of: str) -> Any:
    """Ask the project's function for the name of a guest, who has a session and nothing else."""
    request: Any = HttpRequest()
    request.method = "POST"
    request.META = {"REMOTE_ADDR": of, "HTTP_AUTHORIZATION": of}
    request.COOKIES = {settings.SESSION_COOKIE_NAME: of, settings.CSRF_COOKIE_NAME: of}
    request.user = SimpleNamespace(is_authenticated=False, is_anonymous=True, pk=None)
    request.session = _Session(of)
    with suppress(Exception):  # it needs more of a request, or refuses guests
        return import_string(path)(request)
    return None


class _Session(dict[str, Any]):
    """Session without content, for functions that read one."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.session_key = key


def _keyed_views() -> list[Any]:
    """List each keyed view once, by name; none where the settings name the caller, or E001 or E002 comes first."""
    config = parsed()
    if (
        config is None
        or not config.enabled
        or config.principal is not None
        or MIDDLEWARE not in settings.MIDDLEWARE
    ):
        return []
    found = {name_of(view): view for path, view in all_views() if _is_keyed(path, view)}
    return [found[name] for name in sorted(found)]


def _knows_callers() -> bool:
    """Check if a middleware before ours names users or sessions."""
    before = (
        settings.MIDDLEWARE[: settings.MIDDLEWARE.index(MIDDLEWARE)] if MIDDLEWARE in settings.MIDDLEWARE else []
    )
    return SESSIONS in before or AUTHENTICATION in before


def _is_keyed(path: str, view: Any) -> bool:
    by_setting = is_named(path) and not why_not(view) and keyed_form(view) is not None
    return by_setting or is_marked(view)


def _nobody_is_named(view: Any) -> CheckMessage:
    return Advice(
        f"Nothing names the callers of {name_of(view)}: neither AuthenticationMiddleware nor SessionMiddleware "
        f"stands before {MIDDLEWARE!r}, and the view authenticates nobody. Add one of them, or name a "
        "function in IDEMPOTENCY['PRINCIPAL'].",
        id="idempotency.W001",
    )


def _anybody_is_taken(view: Any) -> CheckMessage:
    return Advice(
        f"{name_of(view)} takes keyed calls under AllowAny: a caller without user, request.auth and session is "
        "anonymous, and shares a key with anyone who guesses it, so keys that can be guessed are refused.",
        hint="Set IDEMPOTENCY['ANONYMOUS'] to 'refuse' to turn them away, name a function in "
        "IDEMPOTENCY['PRINCIPAL'], or silence this if they are meant to come.",
        id="idempotency.W003",
    )


def _authenticates(view: Any) -> bool:
    """Check if the view itself may name its callers."""
    if is_ninja(view):
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
