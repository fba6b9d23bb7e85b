"""System checks: each names a mistake in the project's settings and what to write instead."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router
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
    return [*_middleware(config), *_cache(config), *_router(config)] if config.enabled else []


def _router(config: Config) -> list[CheckMessage]:
    from idempotency.models import LedgerEntry  # noqa: PLC0415  models are not ready when this is imported

    alias = router.db_for_write(LedgerEntry)
    if alias == config.database and router.allow_migrate_model(alias, LedgerEntry):
        return []
    return [
        Error(
            f"DATABASE_ROUTERS keep the ledger's tables out of {config.database!r}, where keyed views have their "
            "transactions. Let them route the app 'idempotency' there.",
            id="idempotency.E015",
        )
    ]


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
    """Check that keyed views have one policy, and that all that ``KEYED`` names can be keyed."""
    messages: dict[str, CheckMessage] = {}
    for path, view in _all_views():
        name, cls = _name(view), _class_of(view)
        messages.update(_of_options(view, name))
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


def _of_options(view: Any, name: str) -> Iterator[tuple[str, CheckMessage]]:
    """Yield what is wrong with the options and doors of a view's handlers."""
    config = _config()
    for handler in _handlers(view):
        policy, door = getattr(handler, "idempotency_policy", None), getattr(handler, "idempotency_door", None)
        if policy is None or config is None:
            continue
        if policy.lifetime is not None and policy.lifetime > config.body_seconds:
            yield (
                f"E013 {name}",
                Error(
                    f"{name} has lifetime={policy.lifetime}, and answers are stored for "
                    f"{config.body_seconds:g} s. Raise IDEMPOTENCY['BODY_SECONDS'], or lower the option.",
                    id="idempotency.E013",
                ),
            )
        right = "ninja" if _is_ninja(view) else "drf" if hasattr(view, "cls") else "views"
        if door != right:
            yield (
                f"E014 {name}",
                Error(
                    f"{name} is under idempotency.{door}.idempotent, which cannot answer for it. Write "
                    f"idempotency.{right}.idempotent.",
                    id="idempotency.E014",
                ),
            )


@register(Tags.urls)
def check_callers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that keyed views can identify their callers, and take anonymous ones on purpose."""
    config = _config()
    if (
        config is None
        or not config.enabled
        or config.principal is not None
        or MIDDLEWARE not in settings.MIDDLEWARE
    ):
        return []  # E001, E002
    before = settings.MIDDLEWARE[: settings.MIDDLEWARE.index(MIDDLEWARE)]
    known = SESSIONS in before or AUTHENTICATION in before
    messages: dict[str, CheckMessage] = {}
    for path, view in _all_views():
        name = _name(view)
        if not _is_marked(view) and (not is_named(path) or _why_not(view) or keyed_form(view) is None):
            continue
        if not known and not _authenticates(view):
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
            hint="Take the view out of it: let a DRF class inherit from idempotency.drf.IdempotentMixin first, "
            "put @non_atomic_requests above @api_view, decorate `dispatch` of any other class; for Django Ninja, "
            "call non_atomic_requests(pattern.callback) for each pattern of api.urls[0].",
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
    return any(hasattr(handler, "idempotency_mode") for handler in _handlers(view))


def _handlers(view: Any) -> list[Any]:
    """List what may be keyed by a decorator of its own: the view, its methods or its operations."""
    if _is_ninja(view):
        from idempotency.ninja import operations_of  # noqa: PLC0415  only where it is installed

        return [operation.view_func for operation in operations_of(view)]
    cls = _class_of(view)
    if cls is None:
        return [view]
    methods = [getattr(cls, name, None) for name in dir(cls)]
    if not hasattr(view, "cls"):
        return methods
    from idempotency.drf import function_of  # noqa: PLC0415  only where it is installed

    return [function_of(method) for method in methods]


def _is_ninja(view: Any) -> bool:
    return getattr(view, "__module__", "") == "ninja.operation"


def _authenticates(view: Any) -> bool:
    """Check if the view itself may name its callers."""
    if _is_ninja(view):
        from idempotency.ninja import operations_of  # noqa: PLC0415

        return all(operation.auth_callbacks for operation in operations_of(view))
    return bool(_option(view, "authentication_classes"))


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
    is_function = _class_of(view) is None and not _is_ninja(view)
    leaves = is_function or DEFAULT_DB_ALIAS in getattr(view, "_non_atomic_requests", ())
    return not leaves and _is_marked(view)


def _class_of(view: Any) -> Any:
    return getattr(view, "view_class", getattr(view, "cls", None))


def _name(view: Any) -> str:
    cls = _class_of(view)
    named = view if cls is None else cls
    if _is_ninja(view) and (operations := _handlers(view)):
        named = operations[0]
    name = getattr(named, "__qualname__", repr(named))
    if name == "WrappedAPIView":  # of @api_view, which gives it the function's name only
        name = named.__name__
    return f"{named.__module__}.{name}"
