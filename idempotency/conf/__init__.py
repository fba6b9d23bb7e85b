"""Settings of `IDEMPOTENCY = {...}`, typed and checked once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.cache import DEFAULT_CACHE_ALIAS
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS

from idempotency.conf import readers
from idempotency.conf.readers import MARKED, UNSAFE

__all__ = ["MARKED", "UNSAFE", "Config", "config", "is_of_django_redis", "meant", "mistakes", "parse", "parsed"]


def key(reader: readers.Reader, default: Any) -> Any:
    """Make a setting's field from its reader and its default."""
    return field(default_factory=lambda: default, metadata={"reader": reader})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Config:
    """Values of the `IDEMPOTENCY` setting; each field is its key in capitals.

    docs/reference/idempotency-settings.md says what each means. `redis` is either `redis_alias`, None too where
    `enabled` is off and django-redis does not serve that cache, or `redis_client`, a URL or path.
    """

    enabled: bool = key(readers.switch, True)
    database: str = key(readers.database, DEFAULT_DB_ALIAS)
    keyed: str | Sequence[str] = key(readers.keyed, MARKED)
    required: bool = key(readers.switch, True)
    header: str = key(readers.header, "Idempotency-Key")
    ignore: tuple[str, ...] = key(readers.names, ())
    wait_seconds: float = key(readers.not_negative, 0.0)
    lease_seconds: float = key(readers.positive, 30.0)
    marker_seconds: float = key(readers.positive, 3.0)  # short: after a crash a retry waits; outliving it is safe
    result_seconds: float = key(readers.positive, 86_400.0)
    body_seconds: float = key(readers.positive, 86_400.0)
    tombstone_seconds: float = key(readers.positive, 7_776_000.0)  # 90 days: longer than any client retries
    repeats: int = key(readers.count, 2)
    max_response_bytes: int = key(readers.positive, 262_144)
    redis: str | None = key(readers.redis, "default")
    redis_async_client: str | None = key(readers.dotted_path, None)
    redis_prefix: str = key(readers.text, "")
    lock_servers: Mapping[str, Any] = key(readers.lock_servers, {})
    breaker_seconds: float = key(readers.positive, 2.0)
    token_seconds: int = key(readers.positive, 3_600)
    principal: str | None = key(readers.dotted_path, None)
    tenant: str | None = key(readers.dotted_path, None)
    anonymous: str = key(readers.anonymous, "accept")
    on_replay: str | None = key(readers.dotted_path, None)
    problem_type_base: str | None = key(readers.address, None)
    redact: tuple[str, ...] = key(readers.names, ())
    body_keys: Mapping[str, str] = key(readers.body_keys, {})
    subject_admin: Mapping[str, str] = key(readers.texts, {})
    redis_alias: str | None = field(init=False)
    redis_client: str | None = field(init=False)
    uses_redis: bool = field(init=False)

    def __post_init__(self) -> None:
        alias, client = (self.redis, None) if self.redis in settings.CACHES else (None, self.redis)
        if alias is not None and not (self.enabled or _is_usable(alias)):
            alias = None
        object.__setattr__(self, "redis_alias", alias)
        object.__setattr__(self, "redis_client", client)
        object.__setattr__(self, "uses_redis", (alias or client) is not None)


def parse(raw: Any) -> Config:
    """Read the setting; ImproperlyConfigured names an unknown key or a value out of range."""
    if not isinstance(raw, Mapping):
        raise ImproperlyConfigured(f"IDEMPOTENCY must be a dict, not {raw!r}.")
    for mistake in mistakes(raw):
        raise ImproperlyConfigured(mistake)
    given = {_KNOWN[name].name: value for name, value in raw.items()}
    if "redis" not in given and not is_of_django_redis(DEFAULT_CACHE_ALIAS):
        given["redis"] = None
    config = Config(**given)
    if config.tombstone_seconds < config.body_seconds:
        raise ImproperlyConfigured(
            "IDEMPOTENCY['TOMBSTONE_SECONDS'] must be at least BODY_SECONDS: a key outlives its answer's bytes."
        )
    if config.tombstone_seconds < config.token_seconds:
        raise ImproperlyConfigured(
            "IDEMPOTENCY['TOMBSTONE_SECONDS'] must be at least TOKEN_SECONDS: a token that is forgotten while it "
            "can still be used would count again."
        )
    return config


def mistakes(raw: Mapping[str, Any]) -> Iterator[str]:
    """Describe each key of the dict that is unknown, or has a value of no use."""
    for name, value in raw.items():
        if name not in _KNOWN:
            yield f"IDEMPOTENCY[{name!r}] is unknown; {meant(str(name).upper(), _KNOWN)}"
            continue
        try:
            _KNOWN[name].metadata["reader"](name, value)
        except (ImproperlyConfigured, TypeError) as error:
            yield str(error)


_KNOWN = {entry.name.upper(): entry for entry in fields(Config) if entry.init}


@lru_cache(maxsize=1)
def config() -> Config:
    return parse(getattr(settings, "IDEMPOTENCY", {}))


def parsed() -> Config | None:
    """Return the configuration; None where the settings do not parse, which E001 reports."""
    try:
        return config()
    except (ImproperlyConfigured, TypeError):
        return None


def meant(name: str, known: Iterable[str]) -> str:
    """Name the known option nearest to a wrong one, or all of them; the end of a sentence."""
    names = sorted(known)
    near = [one for one in names if one.startswith(name) or name.startswith(one) or name.endswith(one)]
    near = near or get_close_matches(name, names, n=1, cutoff=0.8)  # or TTL_SECONDS means WAIT_SECONDS
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}."


def is_of_django_redis(alias: str | None) -> bool:
    """Check if this cache is one of django-redis, installed or not."""
    return alias is not None and "django_redis" in settings.CACHES.get(alias, {}).get("BACKEND", "")


def _is_usable(alias: str) -> bool:
    """Check if django-redis serves this cache, which is required only while enabled."""
    return is_of_django_redis(alias) and find_spec("django_redis") is not None


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"IDEMPOTENCY", "CACHES"}:
        config.cache_clear()


setting_changed.connect(_forget)
