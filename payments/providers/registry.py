"""Channels by name, and providers built from settings; every mistake is reported under its environment setting.

A package below `payments.providers` with a `PLUGIN` is a channel under its own name; any other package is named by
``BACKEND`` in the channel's settings.
"""

import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module

from payments import providers
from payments.providers import settings_fields as fields
from payments.providers.base import Provider
from payments.providers.plugin import Plugin
from payments.providers.settings_fields import ConfigError, Settings

__all__ = ["ConfigError", "build", "names", "plugin", "problems", "unlimited"]

BACKEND = "BACKEND"


@cache
def names() -> tuple[str, ...]:
    """List the channels of this package in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(providers.__path__) if module.ispkg))


def plugin(channel: str, settings: Settings) -> Plugin:
    """Return the plug-in of `channel`.

    Raises:
        ConfigError: there is none.
    """
    path = settings.get(BACKEND, "")
    if not path and channel not in names():
        raise ConfigError(
            f"{channel!r} is not a payment channel; known are {', '.join(names())}. Another one needs "
            f"{fields.env_name(channel, BACKEND)}, the path of a package with a PLUGIN."
        )
    return _plugin_at(path or f"{providers.__name__}.{channel}")


@cache
def _plugin_at(path: str) -> Plugin:
    try:
        found = import_module(path).PLUGIN
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{BACKEND} = {path!r} is no package with a PLUGIN: {error}") from error
    if not isinstance(found, Plugin):
        raise ConfigError(f"{BACKEND} = {path!r}: PLUGIN must be a payments.providers.plugin.Plugin.")
    return found


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
        found = plugin(channel, settings)
        for problem in _missing(channel, found, settings):
            raise problem
        built[channel] = found.build(settings, partial(limits, channel))
    return built


def problems(channel: str, settings: Settings) -> list[ConfigError]:
    """List everything that is wrong with a channel's settings; empty if it can be built."""
    try:
        chosen = plugin(channel, settings)
    except ConfigError as unknown:
        return [unknown]
    found = _missing(channel, chosen, settings)
    for read in chosen.parts:
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


def _missing(channel: str, chosen: Plugin, settings: Settings) -> list[ConfigError]:
    named = {**dict.fromkeys(chosen.required, ""), **settings}
    return [
        ConfigError(f"{fields.env_name(channel, field)} is not set, but other settings of {channel} are.")
        for field, value in named.items()
        if not value and field not in chosen.spared(settings)
    ]
