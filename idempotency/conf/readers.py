"""Readers of the `IDEMPOTENCY` setting: refuse a wrong value, and say what to write."""

import base64
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from idempotency.arguments import LONGEST_SECONDS, is_function
from idempotency.extras import needed

MARKED, UNSAFE = "marked", "unsafe"
KEY_BYTES = 32  # of an operator's key, under which stored answers are encrypted
UP_TO = f"up to {LONGEST_SECONDS:,.0f}"

Reader = Callable[[str, Any], None]


def redis(name: str, value: Any) -> None:
    if value is None or (isinstance(value, str) and value in settings.CACHES):
        return
    if isinstance(value, str) and "://" in value:
        _redis_url(name, value)
        return
    if not isinstance(value, str) or "." not in value:
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] is {value!r}. Write a URL such as 'redis://localhost:6379/0', an alias in "
            "CACHES, the dotted path of a function that returns a redis-py client, or None."
        )
    dotted_path(name, value)


def _redis_url(name: str, value: str) -> None:
    """Refuse a URL without a server. The message does not quote it: it may have a password."""
    from redis import Redis, RedisError  # noqa: PLC0415  only where a URL is given

    try:
        pool = Redis.from_url(value).connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        # a ValueError quotes values; what is behind a password's own question mark is taken for options
        is_quotable = not isinstance(error, ValueError) and "@" not in value.partition("?")[2]
        reason = f": {error}" if is_quotable else ""
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] is a URL that redis-py does not take{reason}. Write a URL such as "
            "'redis://localhost:6379/0', with user and password percent-encoded."
        ) from None


# headers that a browser, a server or this package reads otherwise
_TAKEN_HEADERS = {
    *("authorization", "proxy-authorization", "cookie", "host", "content-type", "content-length", "user-agent"),
    *("accept", "origin", "referer", "x-csrftoken", "idempotency-token"),
}


def is_header_name(value: Any) -> bool:
    is_name = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9-]+", value) is not None
    return is_name and value.lower() not in _TAKEN_HEADERS


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LONGEST_SECONDS


def _is_address(value: Any) -> bool:
    return (
        isinstance(value, str) and value.startswith(("https://", "http://", "/")) and not set(value) & set(' <>"')
    )


def is_names(value: Any) -> bool:
    """Check if `value` is a collection of names, but neither a name nor a dict."""
    is_list = isinstance(value, Collection) and not isinstance(value, (str, Mapping))
    return is_list and all(isinstance(name, str) and name for name in value)


def must_be(wanted: str, fits: Callable[[Any], bool]) -> Reader:
    def check(name: str, value: Any) -> None:
        if not fits(value):
            raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must be {wanted}, not {value!r}.")

    return check


def database(name: str, value: Any) -> None:
    if value not in settings.DATABASES:
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] names {value!r}, which is not in DATABASES.")


def dotted_path(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] must be the dotted path of a function, such as 'project.api.name', "
            f"not {value!r}."
        )
    try:
        if value is None or is_function(import_string(value)):
            return
    except (ImportError, AttributeError) as error:
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] cannot be imported: {error}.") from error
    raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must name a function without async, and {value!r} is none.")


def keyed(name: str, value: Any) -> None:
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


def texts(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(
        isinstance(part, str) and part for pair in value.items() for part in pair
    ):
        raise ImproperlyConfigured(f"IDEMPOTENCY[{name!r}] must be a dict of text to text.")


def lock_servers(name: str, value: Any) -> None:
    if not _names_lock_servers(value):
        raise ImproperlyConfigured(
            f"IDEMPOTENCY[{name!r}] must be a dict with 'redlock', a list of an odd number of URLs, and "
            "'zookeeper', its hosts such as 'one:2181,two:2181', or with one of them."
        )
    if "zookeeper" in value:
        with needed("zookeeper", by=f"IDEMPOTENCY[{name!r}]", error=ImproperlyConfigured):
            import kazoo  # noqa: F401, PLC0415  an extra


def _names_lock_servers(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value.keys() <= {"redlock", "zookeeper"}:
        return False
    urls, hosts = value.get("redlock"), value.get("zookeeper", "none")
    is_majority = isinstance(urls, (list, tuple)) and len(urls) > 1 and len(urls) % 2 == 1
    return (urls is None or is_majority) and isinstance(hosts, str) and hosts != ""


def body_keys(name: str, value: Any) -> None:
    texts(name, value)
    keyring(tuple(value.items()))


@lru_cache(maxsize=4)
def keyring(entries: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    """Decode the operator's keys; ImproperlyConfigured for no 32 bytes, or no `cryptography`."""
    keys = {}
    for key_id, encoded in entries:
        try:
            key = base64.b64decode(encoded, validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise ImproperlyConfigured(
                f"IDEMPOTENCY['BODY_KEYS'][{key_id!r}] must be {KEY_BYTES} bytes in base64."
            )
        keys[key_id] = key
    if keys:
        with needed("encryption", by="IDEMPOTENCY['BODY_KEYS']", error=ImproperlyConfigured):
            import cryptography  # noqa: F401, PLC0415  only where bodies are encrypted
    return keys


positive = must_be(f"a positive number {UP_TO}", lambda value: is_number(value) and value > 0)
not_negative = must_be(f"0 or a positive number {UP_TO}", is_number)
count = must_be(f"0 or a positive integer {UP_TO}", lambda value: is_number(value) and isinstance(value, int))
switch = must_be("True or False", lambda value: isinstance(value, bool))
text = must_be("a text", lambda value: isinstance(value, str))
names = must_be("a list of names", is_names)
header = must_be("the name of a header with no other meaning", is_header_name)
address = must_be("an http(s) address or a path", lambda value: value is None or _is_address(value))
anonymous = must_be("'accept' or 'refuse'", lambda value: value in ("accept", "refuse"))
