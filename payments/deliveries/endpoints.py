"""Endpoints of ``PAYMENTS["WEBHOOKS"]``: their secrets, and what is wrong with them."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from idempotency.webhooks import StandardWebhooks, Unverifiable
from payments.conf import EVENT_TYPES, Endpoint, config
from payments.models import Delivery
from payments.models.event import OPEN
from payments.providers.settings_fields import ConfigError, content, is_loopback, mistake_in

NAME_MAX = 64
KEY_BYTES = range(24, 65)  # Standard Webhooks 1.0.0, "Signature scheme" (read 2026-11)


def signer(name: str, endpoint: Endpoint) -> StandardWebhooks:
    """Return what signs for an endpoint, by its secrets of now. Raises ConfigError."""
    file = endpoint.secrets_file
    text = content(f"{where(name)}['SECRETS_FILE']", file).decode(errors="replace") if file else endpoint.secrets
    return StandardWebhooks([secret for secret in re.split(r"[\s,]+", text) if secret])


def problems(name: str, endpoint: Endpoint) -> Iterator[str]:
    """Yield a sentence for each mistake; none shows a secret."""
    here = where(name)
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        yield f"{here}: a name has 1 to {NAME_MAX} printable characters."
    yield from _of_address(f"{here}['URL']", str(endpoint.url))
    is_list = isinstance(endpoint.events, list | tuple | set | frozenset)
    if not is_list or not {*map(str, endpoint.events)} <= {*EVENT_TYPES}:
        yield f"{here}['EVENTS'] must be a list of some of {', '.join(EVENT_TYPES)}."
    if not isinstance(endpoint.secrets, str):
        yield f"{here}['SECRETS'] must be a text; commas or blanks part its secrets."
        return
    if bool(endpoint.secrets) is bool(endpoint.secrets_file):
        yield f"{here} needs either 'SECRETS' or 'SECRETS_FILE'."
        return
    try:
        verifier = signer(name, endpoint)
        sizes = [len(verifier.key_of(secret)) for secret in verifier.secrets() if secret.startswith("whsec_")]
        if len(sizes) < len(verifier.secrets()) or not {*sizes} <= {*KEY_BYTES}:
            yield f"{here}: a secret is whsec_ and the base64 of 24 to 64 random bytes."
    except ConfigError as error:
        yield str(error)
    except Unverifiable as error:
        yield f"{here}: {error}."


def orphaned() -> list[str]:
    """Name the endpoints that deliveries wait for and the settings lack."""
    waiting = Delivery.objects.filter(status__in=OPEN)
    lacking = waiting.exclude(endpoint__in=[*config().webhooks]).order_by("endpoint")
    return list(lacking.values_list("endpoint", flat=True).distinct())


def where(name: str) -> str:
    """Return how messages name an endpoint."""
    return f"PAYMENTS['WEBHOOKS'][{name!r}]"


def _of_address(field: str, url: str) -> Iterator[str]:
    if mistake := mistake_in(url):
        yield f"{field} {mistake}"
    elif urlsplit(url).scheme == "http" and not settings.DEBUG and not is_loopback(url):
        yield f"{field} must begin with https://; {url} is plain http."
