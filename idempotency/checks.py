"""System checks that explain a mistake in the project's settings before the first request meets it."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

from idempotency.conf import parse

MIDDLEWARE = "idempotency.middleware.IdempotencyMiddleware"


@register(Tags.compatibility)
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """`IDEMPOTENCY` parses, the middleware stands after authentication, the cache is a Redis."""
    messages: list[CheckMessage] = []
    try:
        config = parse(getattr(settings, "IDEMPOTENCY", {}))
    except (ImproperlyConfigured, TypeError) as error:
        return [Error(str(error), id="idempotency.E001")]
    if MIDDLEWARE not in settings.MIDDLEWARE:
        messages.append(Error(f"MIDDLEWARE lacks {MIDDLEWARE!r}; add it as the last one.", id="idempotency.E002"))
    else:
        after = settings.MIDDLEWARE[settings.MIDDLEWARE.index(MIDDLEWARE) :]
        if "django.contrib.auth.middleware.AuthenticationMiddleware" in after:
            messages.append(
                Error(f"{MIDDLEWARE!r} must stand after AuthenticationMiddleware.", id="idempotency.E003")
            )
    if config.redis_alias is not None:
        backend = settings.CACHES[config.redis_alias]["BACKEND"]
        if "django_redis" not in backend:
            messages.append(
                Error(
                    f"CACHES[{config.redis_alias!r}] is {backend!r}; the marker needs django_redis. "
                    "Set IDEMPOTENCY['REDIS_ALIAS'] to None to work without Redis.",
                    id="idempotency.E004",
                )
            )
    return messages
