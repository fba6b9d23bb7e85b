"""Epoch of the ledger: a random word in each name in Redis that answers for effects.

A database that goes back to a backup has lost effects whose answers Redis still has. So after a restore
`manage.py idempotency forget-redis` gives the ledger another epoch, and no process asks for the old names any
more. A schema with a ledger of its own has an epoch of its own.

A process reads the epoch again every `EPOCH_SECONDS`, not at every request, and may believe old names that long.
Without an answer of the database it believes nothing: the read raises.

A test suite uses epochs that only its process knows (`idempotency.testing`), without a query.
"""

import time
from uuid import uuid4

from idempotency.ledger import queries
from idempotency.names import prefix
from idempotency.postgres import home

EPOCH_SECONDS = 10.0

# by prefix: when it was read, by the monotonic clock, and the prefix with it
_read: dict[str, tuple[float, str]] = {}

_local: list[str] = []  # at most one epoch, in place of the database's


def redis_prefix() -> str:
    """Build the prefix of names in Redis that answer for effects in this database and schema.

    Raises:
        django.db.Error: the epoch had to be read and the database did not answer.
    """
    base, now = prefix(), time.monotonic()
    known = _read.get(base)
    if known is None or now - known[0] >= EPOCH_SECONDS:
        known = _read[base] = now, f"{base}:{_current()}"
    return known[1]


def renew_epoch() -> str:
    """Give the ledger another epoch, valid in this process at once, and return it."""
    value = uuid4().hex
    with home.connection().cursor() as cursor:
        cursor.execute(queries.RENEW_EPOCH, [value])
    if _local:
        use_local_epoch(value)
    _read.pop(prefix(), None)
    return value


def use_local_epoch(value: str | None) -> str | None:
    """Use an epoch that only this process knows, None: the database's; return the local one of before."""
    former = _local[0] if _local else None
    _local[:] = [] if value is None else [value]
    _read.clear()
    return former


def _current() -> str:
    if _local:
        return _local[0]
    with home.connection().cursor() as cursor:
        cursor.execute(queries.READ_EPOCH)
        row = cursor.fetchone()
    return row[0] if row else renew_epoch()  # `flush` has emptied the table, and with it all effects
