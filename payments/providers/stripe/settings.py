"""Stripe's settings."""

import re

from payments.providers import settings_fields as fields
from payments.providers.settings_fields import ConfigError, Settings

# methods with their currencies; neither needs anything from the shopper before the redirect or the code
# (Source: Stripe, "Accept an Alipay payment", "WeChat Pay payments", read 2026-11)
METHODS = {
    "alipay": "AUD CAD CNY EUR GBP HKD JPY MYR NZD SGD USD",
    "wechat_pay": "AUD CAD CHF CNY DKK EUR GBP HKD JPY NOK SEK SGD USD",
}

_VISIBLE = re.compile(r"[!-~]+")


def method(settings: Settings) -> str:
    chosen = settings.get("METHOD", "alipay")
    if chosen not in METHODS:
        raise ConfigError(f"STRIPE_METHOD must be one of {', '.join(METHODS)}, not {chosen!r}.")
    return chosen


def api_url(settings: Settings) -> str:
    """Read the address; a live key, which every call carries, needs https."""
    url = fields.url("stripe", "API_URL", settings)
    if not url.startswith("https://") and live_key(settings):
        raise ConfigError("STRIPE_API_URL must begin with https:// where STRIPE_SECRET_KEY is a live key.")
    return url


def secret_key(settings: Settings) -> str:
    """Read the API key. Raises ConfigError for another kind of secret."""
    key = fields.secret("stripe", "SECRET_KEY", settings)
    name = "STRIPE_SECRET_KEY_FILE" if settings.get("SECRET_KEY_FILE") else "STRIPE_SECRET_KEY"
    if key.startswith("pk_"):
        raise ConfigError(f"{name} holds a publishable key (pk_…); the secret one (sk_… or rk_…) belongs here.")
    if key.startswith("whsec_"):
        raise ConfigError(f"{name} holds a webhook secret (whsec_…); that one belongs into STRIPE_WEBHOOK_SECRET.")
    if not _VISIBLE.fullmatch(key):
        raise ConfigError(f"{name} must hold one key of visible characters, and nothing else.")
    return key


def webhook_secrets(settings: Settings) -> tuple[str, ...]:
    """Read all accepted secrets, two during a rotation. Raises ConfigError for another kind.

    Each begins with ``whsec_``: so Stripe's command line prints it, and guides to its dashboard show it; nothing
    that we read names another prefix. Source: Stripe CLI, "listen command" (read 2026-11).
    """
    found = tuple(fields.secret("stripe", "WEBHOOK_SECRET", settings).replace(",", " ").split())
    name = "STRIPE_WEBHOOK_SECRET_FILE" if settings.get("WEBHOOK_SECRET_FILE") else "STRIPE_WEBHOOK_SECRET"
    if any(secret.startswith(("sk_", "rk_", "pk_")) for secret in found):
        raise ConfigError(f"{name} holds an API key; the endpoint's signing secret (whsec_…) belongs here.")
    if not found or not all(re.match("whsec_.", secret) for secret in found):
        raise ConfigError(f"{name} must hold signing secrets of the endpoint, which begin with whsec_.")
    return found


def live_key(settings: Settings) -> str:
    """Name the field of a key that moves real money; empty for a test key."""
    return "SECRET_KEY" if "_live_" in secret_key(settings) else ""
