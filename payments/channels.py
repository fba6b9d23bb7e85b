"""The configured providers of this process, built again when one of their key files has changed.

So keys are rotated without a restart: put the new file in place, and within `LOOK_SECONDS` every process uses
it. A change that does not make a working provider is logged with the name of the setting, and the former keys
stay.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from prometheus_client import Counter

from payments import limits
from payments.providers import registry
from payments.providers.base import Provider

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0

RELOADED = Counter("payonce_provider_keys_reloaded", "Changes of key files, by what came of them.", ["outcome"])

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Built:
    providers: dict[str, Provider]
    stamp: Stamp


class _Channels:
    """Builds once, looks at the files now and then. Thread-safe: whoever comes meanwhile uses what there is."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._built: _Built | None = None
        self._look_at = 0.0

    def current(self) -> dict[str, Provider]:
        if self._built is not None and time.monotonic() < self._look_at:
            return self._built.providers
        with self._guard:
            if self._built is None:
                self._built = _build()
            elif time.monotonic() >= self._look_at:
                self._built = _renewed(self._built)
            self._look_at = time.monotonic() + LOOK_SECONDS
            return self._built.providers

    def look_now(self) -> None:
        self._look_at = 0.0

    def forget(self) -> None:
        self._built = None


_channels = _Channels()


def current() -> dict[str, Provider]:
    """Every configured provider by its channel.

    Raises:
        ConfigError: on the first call, a channel's settings are wrong; later ones leave what there was.
    """
    return _channels.current()


def look_now() -> None:
    """Have the next `current` look at the files."""
    _channels.look_now()


def forget() -> None:
    """Have the next `current` build from the settings."""
    _channels.forget()


def stamp_of(channels: Mapping[str, Mapping[str, str]]) -> Stamp:
    """Path, time and size of every file that the settings name; a file that is away has neither."""
    found = []
    for fields in channels.values():
        for name, value in fields.items():
            if name.endswith("_FILE"):
                found.append(_seen(Path(value)))
            elif name.endswith("_DIR"):
                found += [_seen(path) for path in sorted(Path(value).glob("*.pem"))]
    return tuple(found)


def _seen(path: Path) -> tuple[str, int, int]:
    try:
        state = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), state.st_mtime_ns, state.st_size


def _build() -> _Built:
    stamp = stamp_of(settings.PAYMENT_CHANNELS)  # before reading, so that a change meanwhile is seen next time
    return _Built(registry.build(settings.PAYMENT_CHANNELS, limits=limits.outbound), stamp)


def _renewed(built: _Built) -> _Built:
    stamp = stamp_of(settings.PAYMENT_CHANNELS)
    if stamp == built.stamp:
        return built
    try:
        fresh = _build()
    except registry.ConfigError as error:
        RELOADED.labels("refused").inc()
        log.error("The changed key files are not used: %s", error)
        return _Built(built.providers, stamp)  # told once a change
    RELOADED.labels("used").inc()
    log.info("Key files have changed; the new ones are used from now on.")
    return fresh
