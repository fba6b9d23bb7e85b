"""Refusals at the start: a server or worker runs no system checks, which `manage.py` does before its commands."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver

from idempotency.checks.settings import MIDDLEWARE, backend_of, check_settings, check_tenants
from idempotency.checks.views import check_keyed_views
from idempotency.conf import MARKED, parsed
from idempotency.extras import needed

# those that ask no database
CHECKS = (check_settings, check_tenants, check_keyed_views)
# settings of no use, and what no call would say, as it is answered; of other mistakes each call is an error
_NUMBERS = ("001", "003", "004", "006", "009", "010", "013", "016", "019", "021")
STOPPING = frozenset({f"idempotency.E{number}" for number in _NUMBERS})


def require_django_redis() -> None:
    """Stop the start where the cache that the settings name cannot be imported; Django would name no remedy.

    Raises:
        ImproperlyConfigured: django-redis is not installed.
    """
    config = parsed()
    if config is not None and config.enabled and "django_redis" in backend_of(config):
        with needed("django-redis", by=f"CACHES[{config.redis_alias!r}]", error=ImproperlyConfigured):
            import django_redis  # noqa: F401, PLC0415  an extra


def require_middleware() -> None:
    """Stop the start where ``KEYED`` names views and nothing keys them.

    Raises:
        ImproperlyConfigured: the middleware is missing.
    """
    config = parsed()
    if config is not None and config.enabled and config.keyed != MARKED and MIDDLEWARE not in settings.MIDDLEWARE:
        raise ImproperlyConfigured(
            f"IDEMPOTENCY['KEYED'] = {config.keyed!r} keys nothing without {MIDDLEWARE!r}. Add it to MIDDLEWARE "
            "as the last one."
        )


def refuse_mistakes() -> None:
    """Stop a server at its start on the errors of the system checks that `STOPPING` lists, all at once.

    Raises:
        ImproperlyConfigured: with the messages, but those that ``SILENCED_SYSTEM_CHECKS`` names.
    """
    _refuse(get_resolver() if getattr(settings, "ROOT_URLCONF", None) else None, parsed())


@lru_cache(maxsize=8)
def _refuse(*of: Any) -> None:
    """Ask once for a URLconf and configuration: a test suite makes a handler for each client."""
    found = [message for check in CHECKS for message in check(None)]
    if errors := [str(each) for each in found if each.id in STOPPING and not each.is_silenced()]:
        raise ImproperlyConfigured("\n".join(errors))
