"""System checks: each names a mistake in the project's settings and what to write instead."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.urls import URLResolver, get_resolver
from django.utils.module_loading import import_string

from idempotency.conf import MARKED, Config, parse
from idempotency.middleware import is_named, keyed_form
from idempotency.request.principal import is_in_our_database

MIDDLEWARE = "idempotency.middleware.IdempotencyMiddleware"

GZIP = "django.middleware.gzip.GZipMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"

WHO = "the caller must be known when a key is looked up"


@register(Tags.compatibility)
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that `IDEMPOTENCY` parses, the middleware is in its place, and the cache is a Redis."""
    try:
        config = parse(getattr(settings, "IDEMPOTENCY", {}))
    except (ImproperlyConfigured, TypeError) as error:
        return [Error(str(error), id="idempotency.E001")]
    return [*_middleware(config), *_cache(config)]


def _middleware(config: Config) -> list[CheckMessage]:
    if MIDDLEWARE not in settings.MIDDLEWARE:
        message = f"MIDDLEWARE lacks {MIDDLEWARE!r}; add it as the last one."
        if config.keyed != MARKED:
            message += f" Without it IDEMPOTENCY['KEYED'] = {config.keyed!r} keys nothing."
        return [Error(message, id="idempotency.E002")]
    messages: list[CheckMessage] = []
    position = settings.MIDDLEWARE.index(MIDDLEWARE)
    before, after = settings.MIDDLEWARE[:position], settings.MIDDLEWARE[position:]
    for other, reason in (
        (AUTHENTICATION, WHO),
        (SESSIONS, WHO),
        (GZIP, "a stored answer must not carry one caller's encoding"),
    ):
        if other in after:
            messages.append(Error(f"{MIDDLEWARE!r} must stand after {other!r}: {reason}.", id="idempotency.E003"))
    if config.keyed != MARKED:
        messages += [
            Error(
                f"{other!r} stands after {MIDDLEWARE!r}, so its process_view is skipped for the calls that "
                f"IDEMPOTENCY['KEYED'] names. Put {MIDDLEWARE!r} after it.",
                id="idempotency.E010",
            )
            for other in after[1:]
            if hasattr(import_string(other), "process_view")
        ]
    if config.principal is None and SESSIONS in before and settings.SESSION_ENGINE.endswith("signed_cookies"):
        messages.append(
            Error(
                f"A guest is known by the session, and one of {settings.SESSION_ENGINE!r} has another key after "
                "each change: use another SESSION_ENGINE, or name a function in IDEMPOTENCY['PRINCIPAL'].",
                id="idempotency.E008",
            )
        )
    if SESSIONS in before and not is_in_our_database(import_module(settings.SESSION_ENGINE).SessionStore):
        messages.append(
            Info(
                f"Sessions of {settings.SESSION_ENGINE!r} are saved after the ledger's commit: what a keyed view "
                "writes to one is lost by a crash between, and its replay may lead to a page that lacks it. "
                "Those of 'django.contrib.sessions.backends.db' in the default database share the commit.",
                id="idempotency.I001",
            )
        )
    return messages


def _cache(config: Config) -> list[CheckMessage]:
    if config.redis_client is not None or config.redis_alias is None:
        return []
    backend = settings.CACHES.get(config.redis_alias, {}).get("BACKEND", "missing")
    if "django_redis" in backend:
        return []
    return [
        Error(
            f"CACHES[{config.redis_alias!r}] is {backend!r}; the marker needs django_redis. Set "
            "IDEMPOTENCY['REDIS_ALIAS'] to None to work without Redis, or name a function that returns a client "
            "in IDEMPOTENCY['REDIS_CLIENT'].",
            id="idempotency.E004",
        )
    ]


@register(Tags.urls)
def check_keyed_views(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that no view is both keyed and exempt, and that all that ``KEYED`` names can be keyed."""
    messages: dict[str, CheckMessage] = {}
    for path, view in _all_views():
        name, cls = _name(view), _class_of(view)
        exempt = getattr(cls, "idempotency_exempt", False) or getattr(view, "idempotency_exempt", False)
        if exempt and _is_marked(view):
            messages[f"E011 {name}"] = Error(
                f"{name} has both @idempotent and @not_keyed. Remove one of them: IDEMPOTENCY['KEYED'] leaves out "
                "what is under @not_keyed, and @idempotent keys a view whatever KEYED is.",
                id="idempotency.E011",
            )
        elif is_named(path) and (reason := _why_not(view)):
            messages[f"E012 {name}"] = Error(
                f"IDEMPOTENCY['KEYED'] names {path}, which it cannot key: {reason} Leave it out by a list of "
                "prefixes, or put @idempotent or @not_keyed on it.",
                id="idempotency.E012",
            )
    return [messages[name] for name in sorted(messages)]


@register(Tags.urls)
def check_callers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that keyed views can identify their callers, and take anonymous ones on purpose."""
    config = _config()
    if config is None or config.principal is not None or MIDDLEWARE not in settings.MIDDLEWARE:
        return []  # E001, E002
    before = settings.MIDDLEWARE[: settings.MIDDLEWARE.index(MIDDLEWARE)]
    known = SESSIONS in before or AUTHENTICATION in before
    messages: dict[str, CheckMessage] = {}
    for path, view in _all_views():
        name = _name(view)
        if not _is_marked(view) and (not is_named(path) or _why_not(view) or keyed_form(view) is None):
            continue
        if not known and not _option(view, "authentication_classes"):
            messages[f"W001 {name}"] = Advice(
                f"Nothing names the callers of {name}: neither AuthenticationMiddleware nor SessionMiddleware "
                f"stands before {MIDDLEWARE!r}, and the view authenticates nobody. Add one of them, or name a "
                "function in IDEMPOTENCY['PRINCIPAL'].",
                id="idempotency.W001",
            )
        elif config.anonymous == "accept" and _is_open_to_all(view):
            messages[f"W003 {name}"] = Advice(
                f"{name} takes keyed calls under AllowAny: a caller without user, request.auth and session is "
                "anonymous, and shares a key with anyone who guesses it, so keys that can be guessed are refused.",
                hint="Set IDEMPOTENCY['ANONYMOUS'] to 'refuse' to turn them away, name a function in "
                "IDEMPOTENCY['PRINCIPAL'], or silence this if they are meant to come.",
                id="idempotency.W003",
            )
    return [messages[name] for name in sorted(messages)]


@register(Tags.urls)
def check_atomic_requests(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that no keyed method runs inside the transaction of ATOMIC_REQUESTS; functions leave it."""
    if not connections.settings[DEFAULT_DB_ALIAS]["ATOMIC_REQUESTS"]:
        return []
    return [
        Error(
            f"{name} has @idempotent methods, but ATOMIC_REQUESTS wraps the view in a transaction of its own.",
            hint="Let a DRF view inherit from idempotency.drf.IdempotentMixin first; of any other, decorate "
            "`dispatch` instead. Either takes the view out of it.",
            id="idempotency.E005",
        )
        for name in sorted({_name(view) for _, view in _all_views() if _keyed_inside_a_transaction(view)})
    ]


@register(Tags.compatibility)
def check_tenants(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Require a ledger in each schema of django-tenants; in a shared one, equal keys of two tenants meet."""
    apps = getattr(settings, "TENANT_APPS", None)
    if apps is None or any(entry.partition(".")[0] == "idempotency" for entry in apps):
        return []
    return [
        Error(
            "TENANT_APPS lacks 'idempotency', so all tenants share one ledger: a caller gets the answer of "
            "another tenant's caller with the same id and key.",
            hint="Put 'idempotency' into TENANT_APPS and into SHARED_APPS.",
            id="idempotency.E009",
        )
    ]


def _config() -> Config | None:
    """Read the settings; None where they do not parse, which is E001."""
    try:
        return parse(getattr(settings, "IDEMPOTENCY", {}))
    except (ImproperlyConfigured, TypeError):
        return None


def _all_views() -> list[tuple[str, Any]]:
    """List each view with its path; none where settings or addresses are missing."""
    if _config() is None or not getattr(settings, "ROOT_URLCONF", None):
        return []
    return list(_views(get_resolver(), "/"))


def _views(resolver: URLResolver, path: str) -> Iterator[tuple[str, Any]]:
    for pattern in resolver.url_patterns:
        here = path + str(pattern.pattern).lstrip("^/")
        if isinstance(pattern, URLResolver):
            yield from _views(pattern, here)
        else:
            yield here, pattern.callback


def _why_not(view: Any) -> str:
    """Explain why ``KEYED`` cannot key a view; empty if it can."""
    try:
        keyed_form(view)
    except TypeError as error:
        return str(error)
    return ""


def _is_marked(view: Any) -> bool:
    """Check if the view, or a method of its class, is under `@idempotent`."""
    cls = _class_of(view)
    if cls is None:
        return hasattr(view, "idempotency_mode")
    return any(hasattr(getattr(cls, name, None), "idempotency_mode") for name in dir(cls))


def _option(view: Any, name: str) -> list[Any]:
    """Read an option of a DRF view from its address or class; empty for a view of plain Django."""
    return list(getattr(view, "initkwargs", {}).get(name, getattr(_class_of(view), name, ())))


def _is_open_to_all(view: Any) -> bool:
    """Check if no permission of a DRF view could turn an anonymous caller away."""
    if not hasattr(view, "cls"):
        return False
    from rest_framework.permissions import AllowAny  # noqa: PLC0415  only where it is installed

    return all(permission is AllowAny for permission in _option(view, "permission_classes"))


def _keyed_inside_a_transaction(view: Any) -> bool:
    leaves = _class_of(view) is None or DEFAULT_DB_ALIAS in getattr(view, "_non_atomic_requests", ())
    return not leaves and _is_marked(view)


def _class_of(view: Any) -> Any:
    return getattr(view, "view_class", getattr(view, "cls", None))


def _name(view: Any) -> str:
    cls = _class_of(view)
    named = view if cls is None else cls
    return f"{named.__module__}.{getattr(named, '__qualname__', repr(named))}"
