"""Removal of old entries: the body first, the key much later, an unfinished entry never.

Every batch is a transaction of its own over unlocked rows, so a request never waits for it, and the next reaper
goes on where a killed one ended.
"""

from uuid import uuid4

from idempotency.conf import config
from idempotency.ledger import queries
from idempotency.postgres import home


def purge_bodies(*, limit: int) -> int:
    """Remove the bytes of up to `limit` answers older than `BODY_SECONDS`; return the count."""
    return home.execute(queries.PURGE_BODIES, [config().body_seconds, limit])


def drop_tombstones(*, limit: int) -> int:
    """Forget up to `limit` finished keys older than `TOMBSTONE_SECONDS`; return the count."""
    return home.execute(queries.DROP_TOMBSTONES, [10 * limit, config().tombstone_seconds, limit])


def drop_messages(*, limit: int) -> int:
    """Forget up to `limit` consumed messages older than `TOMBSTONE_SECONDS`; return the count."""
    return home.execute(queries.DROP_MESSAGES, [limit, config().tombstone_seconds])


def note_reaping() -> None:
    home.execute(queries.NOTE_REAPING, [uuid4().hex])
