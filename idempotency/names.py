"""Prefix of names in Redis, so that no two owners share one.

    <cache>:<database>[/<schema>]        myapp:1:payonce:shop/tenant_b

`<cache>` is the key that the cache of `REDIS` makes of the word `payonce` (`KEY_PREFIX`, `VERSION`,
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
from django.db import connections

from idempotency.conf import Config, config

ROOT = "payonce"


def prefix() -> str:
    """Build the prefix of names in Redis, for the tenant of this thread's connection.

    Asks neither Redis nor the database. A program without Django's settings may use locks; it gets `ROOT`.
    """
    try:
        own = config()
        database = connections[own.database]
    except ImproperlyConfigured:
        if settings.configured or ENVIRONMENT_VARIABLE in os.environ:
            raise
        return ROOT
    place = database.settings_dict["NAME"], _schema_of(database)
    return fixed_prefix(own, *place) or _joined(caches[str(own.redis_alias)].make_key(ROOT), *place)


def schema(using: str | None = None) -> str:
    """Name the schema of this thread's connection, by default the ledger's; empty for none."""
    return _schema_of(connections[using or config().database])


def _schema_of(database: Any) -> str:
    return getattr(database, "schema_name", None) or ""


@lru_cache(maxsize=1024)
def fixed_prefix(settings: Config, database: Any, schema: str) -> str | None:
    """Build a database's and schema's prefix; None where a function makes the cache's part."""
    own, alias = settings.redis_prefix, settings.redis_alias
    if own:
        return _joined(f"{own}:{ROOT}", database, schema)
    if alias is None:
        return _joined(ROOT, database, schema)
    cache = caches[alias]
    return _joined(cache.make_key(ROOT), database, schema) if cache.key_func is default_key_func else None


def _joined(cache: str, database: Any, schema: str) -> str:
    # quoted: a brace would be taken for a hash tag, a blank for the end of a channel's name
    place = "/".join(quote(str(part), safe="") for part in (database, schema) if part)
    return f"{quote(cache, safe=':/@')}:{place}"
