"""Prefix of names in Redis, so that no two owners share one.

    <cache>:<database>[/<schema>]        myapp:1:payonce:shop/tenant_b

`<cache>` is the key that the cache of `REDIS_ALIAS` makes of the word `payonce` (`KEY_PREFIX`, `VERSION`,
`KEY_FUNCTION`), or ``<REDIS_PREFIX>:payonce``; `<schema>` is the connection's, where it has one
(`connection.schema_name` of django-tenants). The rest of the name follows, with a hash tag. All processes must
give the database the same `NAME`.
"""

import os
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.cache import caches
from django.core.cache.backends.base import default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections

from idempotency.conf import config

ROOT = "payonce"


def prefix() -> str:
    """Build the prefix of names in Redis, for the tenant of this thread's connection.

    Asks neither Redis nor the database. A program without Django's settings may use locks; it gets `ROOT`.
    """
    try:
        database = connections[config().database]
    except ImproperlyConfigured:
        if settings.configured or ENVIRONMENT_VARIABLE in os.environ:
            raise
        return ROOT
    return _joined(_of_cache(), str(database.settings_dict["NAME"] or ""), _schema_of(database))


def schema(using: str | None = None) -> str:
    """Name the schema of this thread's connection, by default to the ledger; empty where it has none."""
    return _schema_of(connections[using or config().database])


def _schema_of(database: Any) -> str:
    return getattr(database, "schema_name", None) or ""


def _of_cache() -> str:
    own, alias = config().redis_prefix, config().redis_alias
    if own:
        return f"{own}:{ROOT}"
    if alias is None:
        return ROOT
    return _constant(alias) or caches[alias].make_key(ROOT)


@lru_cache(maxsize=4)
def _constant(alias: str) -> str | None:
    """Return the cache's key of `ROOT`; None where a function of the project makes it, perhaps by tenant."""
    cache = caches[alias]
    return cache.make_key(ROOT) if cache.key_func is default_key_func else None


@lru_cache(maxsize=1024)
def _joined(cache: str, database: str, schema: str) -> str:
    # quoted: a brace would be taken for a hash tag, a blank for the end of a channel's name
    place = "/".join(quote(part, safe="") for part in (database, schema) if part)
    return f"{quote(cache, safe=':/@')}:{place}"


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "CACHES":
        _constant.cache_clear()


setting_changed.connect(_forget)
