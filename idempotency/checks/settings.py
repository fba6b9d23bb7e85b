"""System checks of the settings."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.utils.module_loading import import_string

from idempotency.checks.registry import register
from idempotency.conf import MARKED, Config, is_of_django_redis, mistakes, parse, parsed
from idempotency.request.principal import is_in_our_database

ROUTER = "idempotency.routers.LedgerRouter"
MIDDLEWARE = "idempotency.middleware.IdempotencyMiddleware"

GZIP = "django.middleware.gzip.GZipMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"

WHO = "the caller must be known when a key is looked up"
REDIS_OR_NOT = (
    'Write IDEMPOTENCY = {"REDIS": "redis://localhost:6379/0"} into the settings for a server, or '
    'IDEMPOTENCY = {"REDIS": None} to go without.'
)


@register(Tags.compatibility)
def check_settings(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that `IDEMPOTENCY` parses, a middleware is in its place, and the cache is a Redis."""
    raw = getattr(settings, "IDEMPOTENCY", {})
    try:
        config = parse(raw)
    except (ImproperlyConfigured, TypeError) as error:
        found = list(mistakes(raw)) if isinstance(raw, Mapping) else []
        for message in found or [str(error)]:
            yield Error(message, id="idempotency.E001")
        return
    if config.enabled:
        for check in (_database, _middleware, _cache, _router, _elsewhere):
            yield from check(config)


@register(Tags.security, deploy=True)
def check_enabled(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn of keyed views that run unkeyed in production."""
    config = parsed()
    if config is not None and not config.enabled:
        yield Advice(
            "IDEMPOTENCY['ENABLED'] is False: keyed views run unkeyed, and each copy of a call counts. Leave it"
            " out, but for tests.",
            id="idempotency.W006",
        )


def _database(config: Config) -> Iterator[CheckMessage]:
    vendor = connections[config.database].vendor
    if vendor != "postgresql":
        yield Error(
            f"IDEMPOTENCY['DATABASE'] is {config.database!r}, and DATABASES has {vendor} there; the ledger needs "
            "PostgreSQL. Name the alias of one, or set IDEMPOTENCY['ENABLED'] to False for a test suite without.",
            id="idempotency.E006",
        )


def _elsewhere(config: Config) -> Iterator[CheckMessage]:
    """Name models that are written elsewhere; an error until the project names its database."""
    others = ("django.contrib.", "idempotency.")  # of the ledger E015 speaks
    models = (each for each in apps.get_models() if each._meta.managed and not each.__module__.startswith(others))
    names = [model._meta.label for model in models if router.db_for_write(model) != config.database]
    if not names:
        return
    fault = (
        f"Keyed views have their transactions in {config.database!r}, and these are written elsewhere: "
        f"{', '.join(names)}. A crash between the two commits has such a row written twice, or, under "
        "ATOMIC_REQUESTS, lost."
    )
    hint = "Name the database of what keyed views write in IDEMPOTENCY['DATABASE'], and route all of it there"
    if "DATABASE" in getattr(settings, "IDEMPOTENCY", {}):
        yield Advice(fault, hint=f"{hint}; or silence this if they write none of these.", id="idempotency.W005")
    else:
        hint = f"{hint}: {config.database!r} too, if they write none of these."
        yield Error(fault, hint=hint, id="idempotency.E021")


def _router(config: Config) -> Iterator[CheckMessage]:
    from idempotency.models import LedgerEntry  # noqa: PLC0415  models are not ready when this is imported

    alias = router.db_for_write(LedgerEntry)
    if alias != config.database or not (_lists_without_us() or router.allow_migrate_model(alias, LedgerEntry)):
        yield Error(
            f"DATABASE_ROUTERS keeps the ledger's tables out of {config.database!r}, where keyed views have their "
            f"transactions. Put {ROUTER!r} first in DATABASE_ROUTERS.",
            id="idempotency.E015",
        )


def place() -> int | None:
    """Find our middleware in the setting, by either of its public paths."""
    paths = (MIDDLEWARE, "idempotency.IdempotencyMiddleware")
    return next((position for position, path in enumerate(settings.MIDDLEWARE) if path in paths), None)


def _middleware(config: Config) -> Iterator[CheckMessage]:
    if (position := place()) is None:
        return  # `check_middleware` knows if a view needs it
    before, after = settings.MIDDLEWARE[:position], settings.MIDDLEWARE[position:]
    for other, reason in (
        (AUTHENTICATION, WHO),
        (SESSIONS, WHO),
        (GZIP, "a stored answer must not carry one caller's encoding"),
    ):
        if other in after:
            yield Error(f"{MIDDLEWARE!r} must stand after {other!r}: {reason}.", id="idempotency.E003")
    for other in after[1:] if config.keyed != MARKED else ():
        if hasattr(import_string(other), "process_view"):
            yield Error(
                f"{other!r} stands after {MIDDLEWARE!r}, so its process_view is skipped for the calls that "
                f"IDEMPOTENCY['KEYED'] names. Put {MIDDLEWARE!r} after it.",
                id="idempotency.E010",
            )
    if config.principal is None and SESSIONS in before and settings.SESSION_ENGINE.endswith("signed_cookies"):
        yield Error(
            f"A guest is known by the session, and one of {settings.SESSION_ENGINE!r} has another key after "
            "each change: use another SESSION_ENGINE, or name a function in IDEMPOTENCY['PRINCIPAL'].",
            id="idempotency.E008",
        )
    if SESSIONS in before and not is_in_our_database(import_module(settings.SESSION_ENGINE).SessionStore):
        yield Info(
            f"Sessions of {settings.SESSION_ENGINE!r} are saved after the ledger's commit: what a keyed view "
            "writes to one is lost by a crash between, and its replay may lead to a page that lacks it. "
            f"Those of 'django.contrib.sessions.backends.db' in {config.database!r} share the commit.",
            id="idempotency.I001",
        )


def _cache(config: Config) -> Iterator[CheckMessage]:
    if not config.uses_redis and "REDIS" not in getattr(settings, "IDEMPOTENCY", {}):
        yield Advice(
            "The settings name no Redis: keyed calls work on the ledger alone, where a retry costs a query, "
            "and locks need a client= of their own.",
            hint=REDIS_OR_NOT,
            id="idempotency.W008",
        )
    elif (alias := config.redis_alias) is not None and not is_of_django_redis(alias):
        backend = settings.CACHES[alias].get("BACKEND", "missing")
        yield Error(
            f"CACHES[{alias!r}] is {backend!r}; the marker needs django_redis. Set"
            " IDEMPOTENCY['REDIS'] to a URL, a function that returns a client, or None to work without Redis.",
            hint=REDIS_OR_NOT,
            id="idempotency.E004",
        )


@register(Tags.compatibility)
def check_tenants(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Require a ledger in each schema of django-tenants."""
    meet = "a caller gets the answer of another tenant's caller with the same id and key"
    config = parsed()
    engine = connections.settings[config.database]["ENGINE"] if config and not config.tenant else ""
    if engine.startswith("django_pgschemas"):
        yield Error(
            f"Names in Redis do not have the schema of django-pgschemas: {meet}.",
            hint="Name a function in IDEMPOTENCY['TENANT'], and keep the only ledger in the public schema.",
            id="idempotency.E009",
        )
        return
    because = {
        "TENANT_APPS": f"all tenants share one ledger: {meet}",
        "SHARED_APPS": "the public schema has no ledger",
    }
    for name in _lists_without_us():
        yield Error(
            f"{name} lacks 'idempotency', so {because[name]}.",
            hint="Put 'idempotency' into TENANT_APPS and into SHARED_APPS.",
            id="idempotency.E009",
        )


def _lists_without_us() -> list[str]:
    if not hasattr(settings, "TENANT_APPS"):
        return []
    lists = {name: getattr(settings, name, None) for name in ("TENANT_APPS", "SHARED_APPS")}
    return [
        name
        for name, apps in lists.items()
        if apps is not None and not any(entry.partition(".")[0] == "idempotency" for entry in apps)
    ]
