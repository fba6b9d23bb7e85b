"""From settings to provider objects; every mistake is told with the name of its environment setting."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from payments.providers import settings_fields as fields
from payments.providers.alipay import settings as alipay_settings
from payments.providers.alipay.client import Alipay
from payments.providers.base import Provider
from payments.providers.settings_fields import ConfigError, Settings
from payments.providers.stripe import settings as stripe_settings
from payments.providers.stripe.client import StripeIntents
from payments.providers.transport import Limits
from payments.providers.wechat import settings as wechat_settings
from payments.providers.wechat.client import WeChatPay

__all__ = ["ConfigError", "build", "problems", "unlimited"]

_BUILDERS: dict[str, Callable[[Settings, Limits], Provider]] = {
    "wechat": wechat_settings.build,
    "alipay": alipay_settings.build,
    "stripe": stripe_settings.build,
}

# channels where one number of ours may be charged more than once
_KINDS: dict[str, type[Provider]] = {"wechat": WeChatPay, "alipay": Alipay, "stripe": StripeIntents}
RECHARGING = frozenset(name for name, kind in _KINDS.items() if kind.charges_again)

_REQUIRED = {
    "wechat": wechat_settings.REQUIRED,
    "alipay": alipay_settings.REQUIRED,
    "stripe": stripe_settings.REQUIRED,
}

# what can be read by itself, so that one mistake does not hide another
_PARTS: dict[str, tuple[Callable[[Settings], object], ...]] = {
    "wechat": (
        partial(fields.url, "wechat", "API_URL"),
        wechat_settings.api_v3_keys,
        wechat_settings.mch_pair,
        wechat_settings.valid_platform_keys,
    ),
    "alipay": (
        partial(fields.url, "alipay", "GATEWAY_URL"),
        alipay_settings.app_key,
        alipay_settings.platform_keys,
        alipay_settings.certificates,
    ),
    "stripe": (
        stripe_settings.api_url,
        stripe_settings.secret_key,
        stripe_settings.webhook_secrets,
        stripe_settings.method,
    ),
}


def unlimited(channel: str) -> AbstractContextManager[None]:
    """No limits on the calls of `channel`."""
    return nullcontext()


def build(
    channels: Mapping[str, Settings], *, limits: Callable[[str], AbstractContextManager[None]] = unlimited
) -> dict[str, Provider]:
    """A provider for every configured channel.

    Args:
        channels: channel -> field -> value; the environment's name of a field is ``CHANNEL_FIELD``.
        limits: channel -> a context for one outbound call; see `payments.providers.transport.Limits`.

    Raises:
        ConfigError: a field is missing or wrong, or the channel is unknown.
    """
    built = {}
    for channel, settings in channels.items():
        for problem in _missing(channel, settings):
            raise problem
        built[channel] = _BUILDERS[channel](settings, partial(limits, channel))
    return built


def problems(channel: str, settings: Settings) -> list[ConfigError]:
    """Everything that is wrong with a channel's settings, not only the first of it; none: it can be built."""
    found = _missing(channel, settings)
    for read in _PARTS.get(channel, ()):
        try:
            read(settings)
        except ConfigError as problem:
            found.append(problem)
        except KeyError:
            continue  # it is missing, which is told already
    if not found:
        try:
            build({channel: settings})
        except ConfigError as problem:
            found.append(problem)
    return found


def _missing(channel: str, settings: Settings) -> list[ConfigError]:
    if channel not in _BUILDERS:
        return [ConfigError(f"{channel!r} is not a payment channel; known are {', '.join(sorted(_BUILDERS))}.")]
    named = {**dict.fromkeys(_REQUIRED[channel], ""), **settings}
    return [
        ConfigError(f"{fields.env_name(channel, field)} is not set, but other settings of {channel} are.")
        for field, value in named.items()
        if not value and not _stood_for(field, settings)
    ]


def _stood_for(field: str, settings: Settings) -> bool:
    """Whether certificates make do without `field`."""
    if field == "PUBLIC_KEY_FILE":
        return bool(alipay_settings.certificates_set(settings))
    return field == "MCH_SERIAL" and bool(settings.get("MCH_CERT_FILE"))
