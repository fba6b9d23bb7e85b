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

__all__ = ["MARKED", "UNSAFE", "Config", "config", "meant", "mistakes", "parse", "parsed"]


def key(reader: readers.Reader, default: Any) -> Any:
    """Make the field of a key: what refuses a value of no use, and its value where it is left out."""
    return field(default_factory=lambda: default, metadata={"reader": reader})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Config:
    """Values of the `IDEMPOTENCY` setting; each field is its key in capitals.

    Attributes:
        enabled: False: keyed views run unkeyed and say so by the header ``Idempotency: disabled``. They need
            neither PostgreSQL nor Redis then: for test suites on SQLite.
        database: alias of the ledger's database, which is that of the keyed views' transactions.
        keyed: unsafe calls that need a key. ``"marked"``: of views under `@idempotent`; ``"unsafe"``: of all views
            but those under `@not_keyed`; a list of path prefixes, each with its slashes: of the views below them.
        required: False: a call without a key runs unkeyed. A view's own `required` counts before it.
        header: name of the header with the key.
        ignore: JSON members and form fields that two copies of a request may differ in.
        wait_seconds: how long a duplicate waits for the first call's answer before 409; 0 answers at once.
        lease_seconds: how long after the death of its process a phased call waits for a retry that takes over;
            while the process lives, its lease is renewed.
        marker_seconds: how long a running atomic call holds off its duplicates in Redis. Short, because after a
            crash a retry waits this long; outliving it is safe, the ledger then decides between the two.
        result_seconds: how long a finished answer is replayed from Redis; the ledger answers after that.
        body_seconds: how long the bytes of an answer are stored at all; a later retry gets 410.
        tombstone_seconds: how long a finished key is remembered; only after that it could run again. At least
            `body_seconds` and `token_seconds`.
        repeats: how often an atomic call runs again by itself after a deadlock or a serialization failure.
        max_response_bytes: larger answers are not stored; a retry gets 410 with the resource's Location.
        redis: where Redis is: a URL, an alias in `CACHES` of a django-redis cache, the dotted path of a function
            without arguments that returns a redis-py client, or None to work on the ledger alone. Sets
            `redis_alias` or `redis_client`, which are its older names. Left out: ``default`` of `CACHES`, if it is
            one of django-redis; else the ledger alone, as check W008 says.
        redis_alias: alias in `CACHES` of a django-redis cache, or None to work on the ledger alone; None too where
            `enabled` is off and django-redis does not serve that cache.
        redis_client: dotted path of a function without arguments that returns a redis-py client, used instead
            of the alias: for a Redis Cluster, which django-redis does not know.
        redis_async_client: dotted path of a function without arguments that returns a client of `redis.asyncio`,
            for the locks of asyncio; None makes one from the alias. Called once a loop.
        redis_prefix: beginning of every name in Redis, in place of the cache's ``KEY_PREFIX``, for projects that
            share a server by URL and call their databases the same.
        lock_servers: servers whose locks operators see beside those of `redis`: ``"redlock"``, the URLs of all its
            servers, and ``"zookeeper"``, its hosts.
        breaker_seconds: how long Redis is left alone after it failed.
        token_seconds: how long a one-time token may wait for its use.
        principal: dotted path of a function from request to the caller's stable name, asked before all else that
            may name them (`idempotency.request.principal`).
        tenant: dotted path of a function from request to the tenant's name, where tenants share a ledger; callers
            of two tenants never meet.
        anonymous: policy for a keyed call without any known caller. ``"accept"``: its key must be hard to guess;
            ``"refuse"``: 401 or 403.
        on_replay: dotted path of a function that is called with the request and each answer of a view that is a
            replay, and may change or replace it. A view's own `on_replay` counts before it.
        problem_type_base: address of a page that explains problems, to which the `code` is added for a problem's
            `type` and `Link`, e.g. ``https://shop.example/docs#``; None: `type` is a URN.
        redact: names of JSON members whose values are replaced before an answer is stored.
        body_keys: key id → 32 bytes in base64; answers are stored encrypted under the first one, and read under
            any of them. Empty: stored as they are.
        subject_admin: kind of subject → name of the admin address that shows it, e.g. ``{"order":
            "admin:shop_order_change"}``.
        uses_redis: derived: Redis is named.
    """

    enabled: bool = key(readers.switch, True)
    database: str = key(readers.database, DEFAULT_DB_ALIAS)
    keyed: str | Sequence[str] = key(readers.keyed, MARKED)
    required: bool = key(readers.switch, True)
    header: str = key(readers.header, "Idempotency-Key")
    ignore: tuple[str, ...] = key(readers.names, ())
    wait_seconds: float = key(readers.not_negative, 0.0)
    lease_seconds: float = key(readers.positive, 30.0)
    marker_seconds: float = key(readers.positive, 3.0)
    result_seconds: float = key(readers.positive, 86_400.0)
    body_seconds: float = key(readers.positive, 86_400.0)
    tombstone_seconds: float = key(readers.positive, 7_776_000.0)  # 90 days: longer than any client retries
    repeats: int = key(readers.count, 2)
    max_response_bytes: int = key(readers.positive, 262_144)
    redis: str | None = key(readers.redis, "default")
    redis_alias: str | None = key(readers.alias, "default")
    redis_client: str | None = key(readers.dotted_path, None)
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
    uses_redis: bool = field(init=False)

    def __post_init__(self) -> None:
        if not (self.enabled or self.redis_alias is None or _is_usable(self.redis_alias)):
            object.__setattr__(self, "redis_alias", None)
        named = self.redis_client is not None or self.redis_alias is not None
        object.__setattr__(self, "uses_redis", named)


def parse(raw: Any) -> Config:
    """Read the dict of the `IDEMPOTENCY` setting.

    Raises:
        ImproperlyConfigured: an unknown key or a value out of range, named.
    """
    if not isinstance(raw, Mapping):
        raise ImproperlyConfigured(f"IDEMPOTENCY must be a dict, not {raw!r}.")
    for mistake in mistakes(raw):
        raise ImproperlyConfigured(mistake)
    config = Config(**{_KNOWN[name].name: value for name, value in raw.items()}, **_of_redis(raw))
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
    """Return the configuration in force."""
    return parse(getattr(settings, "IDEMPOTENCY", {}))


def parsed() -> Config | None:
    """Return the configuration in force; None where the settings do not parse, which check E001 reports."""
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


def _is_of_django_redis(alias: str) -> bool:
    """Check if this cache is one of django-redis, installed or not."""
    return "django_redis" in settings.CACHES.get(alias, {}).get("BACKEND", "")


def _is_usable(alias: str) -> bool:
    """Check if django-redis serves this cache, which the start and a system check require only while enabled."""
    return _is_of_django_redis(alias) and find_spec("django_redis") is not None


def _of_redis(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``REDIS`` as its older names."""
    if "REDIS" not in raw:
        is_named = "REDIS_ALIAS" in raw or raw.get("REDIS_CLIENT") is not None
        return {} if is_named or _is_of_django_redis(DEFAULT_CACHE_ALIAS) else {"redis_alias": None}
    older = [name for name in ("REDIS_ALIAS", "REDIS_CLIENT") if name in raw]
    if older:
        raise ImproperlyConfigured(f"IDEMPOTENCY has 'REDIS', which replaces {older[0]!r}. Remove {older[0]!r}.")
    where = raw["REDIS"]
    if where is None or where in settings.CACHES:
        return {"redis_alias": where}
    return {"redis_alias": None, "redis_client": where}


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"IDEMPOTENCY", "CACHES"}:
        config.cache_clear()


setting_changed.connect(_forget)
