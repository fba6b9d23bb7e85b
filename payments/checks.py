"""System checks: the settings name what exists, and every configured channel can be built."""

import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any

from cryptography import x509
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from idempotency.checks import check_settings
from payments.providers import registry
from payments.providers.alipay.keys import leaves
from payments.providers.settings_fields import is_loopback
from payments.providers.stripe import settings as stripe_settings

ENDS_SOON = timedelta(days=30)

# files that we alone may read
_PRIVATE = ("MCH_KEY_FILE", "API_V3_KEY_FILE", "APP_KEY_FILE", "SECRET_KEY_FILE", "WEBHOOK_SECRET_FILE")


@register(Tags.compatibility)
def check_functions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that `PAYMENT_ORDER_LISTENER` and `PAYMENT_EVENT_HANDLER` name functions."""
    found: list[CheckMessage] = []
    for name in ("PAYMENT_ORDER_LISTENER", "PAYMENT_EVENT_HANDLER"):
        path = getattr(settings, name, "")
        try:
            function = import_string(path)
        except ImportError as error:
            found.append(Error(f"{name} = {path!r} cannot be imported: {error}", id="payments.E001"))
        else:
            if not callable(function):
                found.append(Error(f"{name} = {path!r} is not a function.", id="payments.E002"))
            elif name == "PAYMENT_ORDER_LISTENER" and not _takes(function, "order_id", "event", "work"):
                found.append(
                    Error(
                        f"{name} = {path!r} must take order_id, event and work by name:"
                        " see payments.settlement.apply.OrderListener.",
                        id="payments.E002",
                    )
                )
    return found


def _takes(function: Callable[..., object], *names: str) -> bool:
    try:
        signature(function).bind(**dict.fromkeys(names))
    except TypeError:
        return False
    return True


@register(Tags.security)
def check_channels(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check every configured channel: settings complete, keys of the right kind."""
    found: list[CheckMessage] = []
    for channel, fields in settings.PAYMENT_CHANNELS.items():
        problems = dict.fromkeys(map(str, registry.problems(channel, fields)))  # a file that two parts need, once
        found += [Error(problem, id="payments.E003") for problem in problems]
        found += _plain_http(channel, fields)
        found += _live_key_towards_sandbox(channel, fields)
        found += _readable_by_others(channel, fields)
        found += _ending_certificates(channel, fields)
    return found


def must_be_sound() -> None:
    """Stop an entry point that starts no management command on the same mistakes.

    Raises:
        ImproperlyConfigured: with a line for each.
    """
    found = [*check_settings(None), *check_channels(None)]
    if errors := [message.msg for message in found if message.is_serious()]:
        raise ImproperlyConfigured("\n".join(errors))


def _plain_http(channel: str, fields: Mapping[str, str]) -> list[CheckMessage]:
    """Report a provider's address that others on the way could read, and answer in its place."""
    urls = {field: fields.get(field, "") for field in ("API_URL", "GATEWAY_URL")}
    plain = {field: url for field, url in urls.items() if url.lower().startswith("http://")}
    return [
        Error(f"{channel.upper()}_{field} must begin with https://; {url} is plain http.", id="payments.E005")
        for field, url in plain.items()
        if not settings.DEBUG
        and not is_loopback(url)
        and "@" not in url  # E003 reports it, and it must not be shown
    ]


def _live_key_towards_sandbox(channel: str, fields: Mapping[str, str]) -> list[CheckMessage]:
    sandbox = getattr(settings, "SANDBOX_URL", "")
    if channel != "stripe" or not sandbox or not fields.get("API_URL", "").startswith(sandbox):
        return []
    try:
        live = "_live_" in stripe_settings.secret_key(fields)
    except registry.ConfigError:
        return []  # E003 reports it
    message = "STRIPE_SECRET_KEY is a live key, but STRIPE_API_URL is the sandbox; set a test key (sk_test_…)."
    return [Error(message, id="payments.E004")] if live else []


def _readable_by_others(channel: str, fields: Mapping[str, str]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for field in _PRIVATE:
        file = fields.get(field, "")
        try:
            mode = Path(file).stat().st_mode if file else 0
        except OSError:
            continue  # E003 reports it
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            message = f"{channel.upper()}_{field}: every user of this machine can read {file}."
            found.append(checks.Warning(message, hint=f"chmod o-rwx {file}", id="payments.W001"))
    return found


def _ending_certificates(channel: str, fields: Mapping[str, str]) -> list[CheckMessage]:
    """Warn of files whose last certificate ends soon; WeChat's renew by themselves."""
    found: list[CheckMessage] = []
    for field in ("MCH_CERT_FILE", "APP_CERT_FILE", "PUBLIC_CERT_FILE"):
        file = fields.get(field, "")
        try:
            held = x509.load_pem_x509_certificates(Path(file).read_bytes()) if file else []
        except (OSError, ValueError):
            continue  # E003 reports it
        # issuers may follow; of Alipay's own, one that takes over may stand beside the one that ends
        ends = max((one.not_valid_after_utc for one in leaves(held) or held[:1]), default=None)
        if ends is not None and datetime.now(UTC) < ends < datetime.now(UTC) + ENDS_SOON:
            message = f"{channel.upper()}_{field}: {file} expires on {ends:%Y-%m-%d}."
            hint = "docs/how-to/rotate-keys.md"
            found.append(checks.Warning(message, hint=hint, id="payments.W002"))
    return found
