"""The configured providers, built again when one of their key files has changed.

So keys rotate without a restart, `LOOK_SECONDS` after a process looked last. A change that makes no working
provider is logged with the setting's name, and the former keys stay.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.urls import reverse
from prometheus_client import Counter

from payments.channels import limits
from payments.conf import config
from payments.providers import registry
from payments.providers.actions import Renderer
from payments.providers.base import Provider
from payments.providers.plugin import Capability, Plugin

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0

RELOADED = Counter("payonce_provider_keys_reloaded", "Changes of key files, by outcome.", ["channel", "outcome"])

Stamp = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Built:
    providers: dict[str, Provider]
    stamps: Mapping[str, Stamp]  # by account, those of the files that were read or refused


class _Channels:
    """Builder of the providers; looks at their files now and then. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._built: _Built | None = None
        self._look_at = 0.0

    def current(self) -> dict[str, Provider]:
        """Return every configured provider by the name of its account.

        Raises ConfigError for wrong settings on the first call; later ones keep the former provider.
        """
        built = self._built
        if built is not None and time.monotonic() < self._look_at:
            return built.providers
        # one looks, the others continue; only the very first ones must wait
        if not self._guard.acquire(blocking=built is None):
            return built.providers  # type: ignore[union-attr]
        try:
            built = self._built
            if built is None or time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_SECONDS  # before looking: `look_now` meanwhile counts
                self._built = built = _renewed(built)
            return built.providers
        finally:
            self._guard.release()

    def look_now(self) -> None:
        """Make the next `current` look at the files."""
        self._look_at = 0.0

    def forget(self) -> None:
        """Make the next `current` build from the settings."""
        with self._guard:
            self._built = None


_channels = _Channels()
current, look_now, forget = _channels.current, _channels.look_now, _channels.forget


def names() -> list[str]:
    """List the channels that are installed or configured."""
    with suppress(registry.ConfigError):  # the check reports it
        return sorted({*registry.names(), *(provider.channel for provider in current().values())})
    return list(registry.names())


def charging_again() -> frozenset[str]:
    """Name the configured accounts where one number of ours may be charged more than once."""
    return frozenset(account for account in config().providers if plugin(account).charges_again)


def can(account: str, capability: Capability) -> bool:
    """Return whether an account's channel has a capability; True for one that is gone."""
    try:
        return capability in plugin(account).capabilities
    except registry.ConfigError:  # the call will say so
        return True


def plugin(account: str) -> Plugin:
    """Return the plug-in of an account, configured or not, or raise `ConfigError`."""
    return registry.plugin(account, config().providers.get(account, {}))


def renderer(account: str, kind: str) -> Renderer:
    """Return how a kind of next action is shown; an unregistered one by the API alone."""
    with suppress(registry.ConfigError):  # the account is gone
        return plugin(account).renderer(kind) or Renderer()
    return Renderer()


def notify_url(account: str) -> str:
    """Return the address to which the provider sends notifications about an account."""
    return config().address(reverse("payments-webhook", args=[account]))


def stamp_of(fields: Mapping[str, str]) -> Stamp:
    """Stamp the versions of an account's files; a missing file has only its path."""
    found = []
    for name, value in fields.items():
        if name.endswith("_FILE") and value:
            found.append(_seen(Path(value)))
        elif name.endswith("_DIR") and value:
            found += [_seen(Path(value)), *(_seen(path) for path in sorted(Path(value).glob("*.pem")))]
    return tuple(found)


def _seen(path: Path) -> tuple[str, int, int, int, int]:
    """Stamp a file: the inode shows a replaced one, the ctime new permissions."""
    try:
        state = path.stat()
    except OSError:
        return str(path), 0, 0, 0, 0
    return str(path), state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino


def _renewed(built: _Built | None) -> _Built:
    """Build the accounts whose files have changed; former providers end with their last call."""
    providers, stamps = ({}, {}) if built is None else (dict(built.providers), dict(built.stamps))
    for account, fields in config().providers.items():
        stamp = stamp_of(fields)  # before reading, so that a change meanwhile is seen next time
        if stamps.get(account) == stamp:
            continue
        stamps[account] = stamp  # a refused change is logged once
        try:
            providers |= registry.build({account: fields}, limits=limits.outbound)
        except registry.ConfigError as error:
            if built is None:
                raise
            RELOADED.labels(account, "refused").inc()
            log.error("The changed key files of %s are not used, the former ones are: %s", account, error)
        else:
            if built is not None:
                RELOADED.labels(account, "used").inc()
                log.info("Key files of %s have changed; the new ones are used from now on.", account)
    return _Built(providers, stamps)
