"""The settings of `IDEMPOTENCY = {...}`, typed and checked once."""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Each field is the key of the same name, in capitals, of the `IDEMPOTENCY` setting.

    Attributes:
        wait_seconds: how long a twin waits for the first call's answer before 409; 0 answers at once.
        lease_seconds: how long a phased handler may run before a retry takes over. Longer than all provider
            time-outs of one handler together.
        marker_seconds: how long a running atomic call holds off its twins in Redis. Short, because after a
            crash a retry waits this long; outliving it is safe, the ledger then decides between the two.
        result_seconds: how long a finished answer is replayed from Redis; the ledger answers after that.
        max_response_bytes: larger answers are not stored; a retry gets 410 with the resource's Location.
        redis_alias: alias in `CACHES` of a django-redis cache, or None to work on the ledger alone.
        breaker_seconds: how long Redis is left alone after it failed.
        token_seconds: how long a one-time token may wait for its use.
    """

    wait_seconds: float = 0.0
    lease_seconds: float = 30.0
    marker_seconds: float = 3.0
    result_seconds: float = 86_400.0
    max_response_bytes: int = 262_144
    redis_alias: str | None = "default"
    breaker_seconds: float = 2.0
    token_seconds: int = 3_600


def parse(raw: dict[str, Any]) -> Config:
    """Read the dict of the `IDEMPOTENCY` setting.

    Raises:
        ImproperlyConfigured: an unknown key or a value out of range, named.
    """
    known = {field.name.upper(): field.name for field in fields(Config)}
    for name in raw:
        if name not in known:
            raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] is unknown; known are {', '.join(sorted(known))}.")
    config = Config(**{known[name]: value for name, value in raw.items()})
    for name, attribute in known.items():
        value = getattr(config, attribute)
        if attribute == "redis_alias":
            if value is not None and value not in settings.CACHES:
                raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] names {value!r}, which is not in CACHES.")
        elif not isinstance(value, (int, float)) or value < 0 or (value == 0 and attribute != "wait_seconds"):
            raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must be a positive number, not {value!r}.")
    return config


@lru_cache(maxsize=1)
def config() -> Config:
    """The configuration in force."""
    return parse(getattr(settings, "IDEMPOTENCY", {}))


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"IDEMPOTENCY", "CACHES"}:
        config.cache_clear()


setting_changed.connect(_forget)
