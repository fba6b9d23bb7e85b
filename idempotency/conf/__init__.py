"""Settings of `IDEMPOTENCY = {...}`, typed and checked once."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from django.utils.module_loading import import_string

from idempotency.extras import needed
from idempotency.keyring import keyring

MARKED, UNSAFE = "marked", "unsafe"


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

    enabled: bool = True
    database: str = DEFAULT_DB_ALIAS
    keyed: str | Sequence[str] = MARKED
    required: bool = True
    header: str = "Idempotency-Key"
    ignore: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    lease_seconds: float = 30.0
    marker_seconds: float = 3.0
    result_seconds: float = 86_400.0
    body_seconds: float = 86_400.0
    tombstone_seconds: float = 7_776_000.0  # 90 days: longer than any client retries
    repeats: int = 2
    max_response_bytes: int = 262_144
    redis: str | None = "default"
    redis_alias: str | None = "default"
    redis_client: str | None = None
    redis_async_client: str | None = None
    redis_prefix: str = ""
    lock_servers: Mapping[str, Any] = field(default_factory=dict)
    breaker_seconds: float = 2.0
    token_seconds: int = 3_600
    principal: str | None = None
    tenant: str | None = None
    anonymous: str = "accept"
    on_replay: str | None = None
    problem_type_base: str | None = None
    redact: tuple[str, ...] = ()
    body_keys: Mapping[str, str] = field(default_factory=dict)
    subject_admin: Mapping[str, str] = field(default_factory=dict)
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
    config = Config(**{_KNOWN[name]: value for name, value in raw.items()}, **_of_redis(raw))
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
            _READERS.get(name, _positive)(name, value)
        except (ImproperlyConfigured, TypeError) as error:
            yield str(error)


_KNOWN = {entry.name.upper(): entry.name for entry in fields(Config) if entry.init}


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
    near = [one for one in names if one.startswith(name) or name.startswith(one)]
    near = near or get_close_matches(name, names, n=1)
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


def _redis(name: str, value: Any) -> None:
    is_text = isinstance(value, str)
    if value is None or (is_text and (value in settings.CACHES or _is_redis_url(value))):
        return
    if not is_text or "." not in value or "://" in value:
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] is {value!r}. Write a URL such as 'redis://localhost:6379/0', an alias in "
            "CACHES, the dotted path of a function that returns a redis-py client, or None."
        )
    _dotted_path(name, value)


def _is_redis_url(value: str) -> bool:
    if "://" not in value:
        return False
    from redis.connection import parse_url  # noqa: PLC0415  only where a URL is given

    try:
        parse_url(value)  # type: ignore[no-untyped-call]
    except ValueError:  # another scheme, or a port that is no number
        return False
    return True


def is_header_name(value: Any) -> bool:
    """Check if `value` can name the header with the key."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9-]+", value) is not None


def is_number(value: Any) -> bool:
    """Check if `value` is 0 or a positive number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _is_address(value: Any) -> bool:
    return (
        isinstance(value, str) and value.startswith(("https://", "http://", "/")) and not set(value) & set(' <>"')
    )


def _is_names(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(part, str) and part for part in value)


def _must_be(wanted: str, fits: Callable[[Any], bool]) -> Callable[[str, Any], None]:
    def read(name: str, value: Any) -> None:
        if not fits(value):
            raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must be {wanted}, not {value!r}.")

    return read


def _database(name: str, value: Any) -> None:
    if value not in settings.DATABASES:
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] names {value!r}, which is not in DATABASES.")


def _alias(name: str, value: Any) -> None:
    if value is not None and value not in settings.CACHES:
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] names {value!r}, which is not in CACHES.")


def _dotted_path(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] must be the dotted path of a function, such as 'project.api.name', "
            f"not {value!r}."
        )
    try:
        if value is None or callable(import_string(value)):
            return
    except (ImportError, AttributeError) as error:
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] cannot be imported: {error}.") from error
    raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must name a function, and {value!r} is none.")


def _keyed(name: str, value: Any) -> None:
    if value in (MARKED, UNSAFE):
        return
    if not isinstance(value, (tuple, list)) or not value:
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] is {value!r}. Write 'marked' (views under @idempotent), 'unsafe' (all unsafe "
            "calls but those of views under @not_keyed), or a list of path prefixes such as ['/api/']."
        )
    for prefix in value:
        if not isinstance(prefix, str) or not prefix.startswith("/"):
            raise ImproperlyConfigured(
                f"IDEMPOTENCY[{name!r}] has the prefix {prefix!r}, which no path begins with. Write it with a "
                "leading slash, such as '/api/'."
            )


def _texts(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(
        isinstance(part, str) and part for pair in value.items() for part in pair
    ):
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must be a dict of text to text.")


def _lock_servers(name: str, value: Any) -> None:
    known = isinstance(value, Mapping) and value.keys() <= {"redlock", "zookeeper"}
    urls, hosts = (value.get("redlock"), value.get("zookeeper", "-")) if known else ("", "")
    odd = urls is None or (isinstance(urls, (list, tuple)) and len(urls) > 1 and len(urls) % 2)
    if not odd or not hosts or not isinstance(hosts, str):
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] is {value!r}. Write a dict with 'redlock', a list of an odd number of URLs, "
            "and 'zookeeper', its hosts such as 'one:2181,two:2181', or with one of them."
        )
    if "zookeeper" in value:
        with needed("zookeeper", by=f"IDEMPOTENCY[{name!r}]", error=ImproperlyConfigured):
            import kazoo  # noqa: F401, PLC0415  an extra


def _keyring(name: str, value: Any) -> None:
    _texts(name, value)
    keyring(tuple(value.items()))


_positive = _must_be("a positive, finite number", lambda value: is_number(value) and 0 < value < float("inf"))
_switch = _must_be("True or False", lambda value: isinstance(value, bool))
_names = _must_be("a list of names", _is_names)

_READERS: Mapping[str, Callable[[str, Any], None]] = {
    "ENABLED": _switch,
    "DATABASE": _database,
    "KEYED": _keyed,
    "REQUIRED": _switch,
    "HEADER": _must_be("the name of a header", is_header_name),
    "IGNORE": _names,
    "REDIS": _redis,
    "REPEATS": _must_be("0 or a positive integer", lambda value: is_number(value) and isinstance(value, int)),
    "WAIT_SECONDS": _must_be("0 or a positive number", is_number),
    "REDIS_ALIAS": _alias,
    "REDIS_CLIENT": _dotted_path,
    "REDIS_ASYNC_CLIENT": _dotted_path,
    "REDIS_PREFIX": _must_be("a text", lambda value: isinstance(value, str)),
    "LOCK_SERVERS": _lock_servers,
    "PRINCIPAL": _dotted_path,
    "TENANT": _dotted_path,
    "ANONYMOUS": _must_be("'accept' or 'refuse'", lambda value: value in ("accept", "refuse")),
    "ON_REPLAY": _dotted_path,
    "PROBLEM_TYPE_BASE": _must_be(
        "an http(s) address or a path", lambda value: value is None or _is_address(value)
    ),
    "REDACT": _names,
    "BODY_KEYS": _keyring,
    "SUBJECT_ADMIN": _texts,
}


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"IDEMPOTENCY", "CACHES"}:
        config.cache_clear()


setting_changed.connect(_forget)
