"""Providers built from settings; every mistake is reported under its environment setting."""

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
from payments.providers.wechat import settings as wechat_settings
from payments.providers.wechat.client import WeChatPay

__all__ = ["ConfigError", "build", "problems", "unlimited"]

_CHANNELS = {"wechat": wechat_settings, "alipay": alipay_settings, "stripe": stripe_settings}

# channels where one number of ours may be charged more than once
_KINDS: dict[str, type[Provider]] = {"wechat": WeChatPay, "alipay": Alipay, "stripe": StripeIntents}
RECHARGING = frozenset(name for name, kind in _KINDS.items() if kind.charges_again)


def unlimited(channel: str) -> AbstractContextManager[None]:
    """Set no limits on the calls of `channel`."""
    return nullcontext()


def build(
    channels: Mapping[str, Settings], *, limits: Callable[[str], AbstractContextManager[None]] = unlimited
) -> dict[str, Provider]:
    """Build a provider for every configured channel.

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
        built[channel] = _CHANNELS[channel].build(settings, partial(limits, channel))
    return built


def problems(channel: str, settings: Settings) -> list[ConfigError]:
    """List everything that is wrong with a channel's settings; empty if it can be built."""
    found = _missing(channel, settings)
    for read in _CHANNELS[channel].PARTS if channel in _CHANNELS else ():
        try:
            read(settings)
        except ConfigError as problem:
            found.append(problem)
        except KeyError:
            continue  # `_missing` has reported it
    if not found:
        try:
            build({channel: settings})
        except ConfigError as problem:
            found.append(problem)
    return found


def _missing(channel: str, settings: Settings) -> list[ConfigError]:
    if channel not in _CHANNELS:
        return [ConfigError(f"{channel!r} is not a payment channel; known are {', '.join(sorted(_CHANNELS))}.")]
    named = {**dict.fromkeys(_CHANNELS[channel].REQUIRED, ""), **settings}
    return [
        ConfigError(f"{fields.env_name(channel, field)} is not set, but other settings of {channel} are.")
        for field, value in named.items()
        if not value and not _stood_for(field, settings)
    ]


def _stood_for(field: str, settings: Settings) -> bool:
    """Check for certificates that make `field` unnecessary."""
    if field == "PUBLIC_KEY_FILE":
        return bool(alipay_settings.certificates_set(settings))
    return field == "MCH_SERIAL" and bool(settings.get("MCH_CERT_FILE"))
