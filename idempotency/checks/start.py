"""Refusals at the start of a server or worker, which runs no system checks."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_started
from django.urls import get_resolver

from idempotency.checks.methods import check_keyed_methods
from idempotency.checks.registry import Check
from idempotency.checks.settings import check_settings, check_tenants
from idempotency.checks.views import check_keyed_views, check_middleware
from idempotency.conf import MARKED, is_of_django_redis, parsed
from idempotency.extras import needed

# settings of no use, and mistakes that show in wrong answers alone; of the others each call is an error
_NUMBERS = ("001", "002", "003", "004", "006", "009", "010", "013", "016", "019", "022")
STOPPING = frozenset({f"idempotency.E{number}" for number in _NUMBERS})


def require_django_redis() -> None:
    """Raise ImproperlyConfigured where the cache needs django-redis: Django names no remedy."""
    config = parsed()
    if config is not None and config.enabled and is_of_django_redis(config.redis_alias):
        with needed("django-redis", by=f"CACHES[{config.redis_alias!r}]", error=ImproperlyConfigured):
            import django_redis  # noqa: F401, PLC0415  an extra


def require_middleware() -> None:
    """Answer nothing where ``KEYED`` names views and no server loads the middleware."""
    request_started.connect(_refuse_without_middleware)


def _refuse_without_middleware(**_: Any) -> None:
    config = parsed()
    if config is not None and config.keyed != MARKED:
        _refuse(check_middleware)
    request_started.disconnect(_refuse_without_middleware)


def refuse_mistakes() -> None:
    """Stop a server on the errors of the system checks that `STOPPING` lists, all at once.

    Of the settings as it loads the middleware; of the views at its first request: they may import what loads it.

    Raises:
        ImproperlyConfigured: with the messages, but those that ``SILENCED_SYSTEM_CHECKS`` names.
    """
    request_started.disconnect(_refuse_without_middleware)
    _refuse(check_settings, check_tenants)
    request_started.connect(_refuse_views)


def _refuse_views(**_: Any) -> None:
    _refuse(check_keyed_views, check_keyed_methods, urlconf=get_resolver())
    request_started.disconnect(_refuse_views)


def _refuse(*checks: Check, urlconf: Any = None) -> None:
    config = parsed()
    if config is None or config.enabled:
        _refuse_once(checks, config, urlconf, *settings.SILENCED_SYSTEM_CHECKS)


@lru_cache(maxsize=8)
def _refuse_once(checks: tuple[Check, ...], *cache_key: Any) -> None:
    """Ask once for a URLconf and configuration: a test suite makes a handler for each client."""
    found = [message for check in checks for message in check(None)]
    if errors := [str(each) for each in found if each.id in STOPPING and not each.is_silenced()]:
        raise ImproperlyConfigured("\n".join(errors))
