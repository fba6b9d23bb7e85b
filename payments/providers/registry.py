"""Channels by name, and providers from settings; mistakes are reported by setting.

A package below `payments.providers` with a `PLUGIN` is a channel under its own name, and so is one that a
distribution has among its entry points ``payonce.providers``. ``BACKEND`` in an account's settings names any other
package, or one of these for a further account.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module, metadata

from payments import providers
from payments.providers.base import Provider
from payments.providers.plugin import VERSION, Plugin
from payments.providers.settings_fields import ConfigError, Settings, env_name
from payments.providers.transport import Limits

__all__ = ["ConfigError", "build", "names", "plugin", "setting", "tried"]

BACKEND = "BACKEND"
ENTRY_POINTS = "payonce.providers"


@cache
def _packages() -> dict[str, str]:
    """Map the installed channels to their packages; none takes the name of one of ours."""
    installed = {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)}
    ours = [module.name for module in pkgutil.iter_modules(providers.__path__) if module.ispkg]
    return {**installed, **{name: f"{providers.__name__}.{name}" for name in ours}}


def names() -> tuple[str, ...]:
    """List the channels that are installed in alphabetical order."""
    return tuple(sorted(_packages()))


def setting(account: str, field: str, settings: Settings) -> str:
    """Name a field for messages: as in the environment where the account is its channel's."""
    return f"PAYMENTS['PROVIDERS'][{account!r}][{field!r}]" if settings.get(BACKEND) else env_name(account, field)


def plugin(account: str, settings: Settings) -> Plugin:
    """Return the plug-in of `account`, or raise `ConfigError`."""
    path = settings.get(BACKEND, "")
    if not path and account not in names():
        raise ConfigError(
            f"{account!r} is not a payment channel; known are {', '.join(names())}. Another one, or a "
            f"further account, needs {BACKEND} (in the environment {env_name(account, BACKEND)}), the path of a "
            "package with a PLUGIN."
        )
    with _named(account, settings):
        return _plugin_at(path or _packages()[account])


@cache
def _plugin_at(path: str) -> Plugin:
    try:
        found = import_module(path).PLUGIN
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"{BACKEND} = {path!r} is no package with a PLUGIN: {error}") from error
    if not isinstance(found, Plugin):
        raise ConfigError(f"{BACKEND} = {path!r}: PLUGIN must be a payments.providers.plugin.Plugin.")
    if found.version != VERSION:
        raise ConfigError(
            f"{BACKEND} = {path!r} is written for version {found.version} of `Plugin`; this is {VERSION}."
        )
    return found


def build(
    accounts: Mapping[str, Settings],
    *,
    limits: Callable[[str], AbstractContextManager[None]] = lambda account: nullcontext(),
) -> dict[str, Provider]:
    """Build a provider for every configured account, or raise `ConfigError`.

    Args:
        accounts: account -> field -> value; the environment's name of a field is ``CHANNEL_FIELD``.
        limits: account -> a context for one outbound call; see `payments.providers.transport.Limits`.
    """
    built = {}
    for account, settings in accounts.items():
        found = plugin(account, settings)
        if missing := _missing(account, found, settings):
            raise missing[0]
        with _named(account, settings):
            built[account] = _made(found, settings, partial(limits, account))
    return built


def _made(chosen: Plugin, settings: Settings, limits: Limits) -> Provider:
    """Build a provider, or raise `ConfigError`, whatever the package raises or returns."""
    try:
        made = chosen.build(settings, limits)
    except ConfigError:
        raise
    except Exception as error:  # not its `repr`, which may hold the bytes of a secret
        raise ConfigError(f"Plugin.build of {chosen.label} failed: {type(error).__name__}: {error}") from error
    for name in ("channel", "merchant", "currencies"):  # whatever its channel can do
        if not hasattr(made, name):
            kind = type(made).__name__
            raise ConfigError(f"Plugin.build of {chosen.label} must return a Provider; {kind} has no {name}.")
    return made


def tried(account: str, settings: Settings) -> tuple[Provider | None, list[ConfigError]]:
    """Build an account's provider, or return None and everything wrong with its settings."""
    try:
        chosen = plugin(account, settings)
    except ConfigError as unknown:
        return None, [unknown]
    found = _missing(account, chosen, settings)
    for read in chosen.parts:
        try:
            with _named(account, settings):
                read(settings)
        except ConfigError as problem:
            found.append(problem)
        except KeyError:
            continue  # `_missing` has reported it
    if found:
        return None, found
    try:
        return build({account: settings})[account], []
    except ConfigError as problem:
        return None, [problem]


@contextmanager
def _named(account: str, settings: Settings) -> Iterator[None]:
    """Add the account to a message that knows its channel alone."""
    try:
        yield
    except ConfigError as problem:
        if not settings.get(BACKEND):
            raise
        raise ConfigError(f"{account}: {problem}") from problem


def _missing(account: str, chosen: Plugin, settings: Settings) -> list[ConfigError]:
    named = {**dict.fromkeys(chosen.required, ""), **settings}
    return [
        ConfigError(f"{setting(account, field, settings)} is not set, but other settings of {account} are.")
        for field, value in named.items()
        if not value and field not in chosen.spared(settings)
    ]
