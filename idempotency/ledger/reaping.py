"""Removal of old entries: their bytes go first, the key much later, an unfinished entry never.

Every batch is a transaction of its own over unlocked rows, so a request never waits for it, and the next reaper
goes on where a killed one ended.
"""

from collections import Counter
from uuid import uuid4

from idempotency.conf import config
from idempotency.ledger import queries
from idempotency.models import LedgerEntry
from idempotency.postgres import home
from idempotency.request.keys import digest_of
from idempotency.response import encryption


def purge_bodies(*, limit: int) -> int:
    """Remove the bytes of up to `limit` answers older than `BODY_SECONDS`; return the count."""
    return _execute(queries.PURGE_BODIES, [config().body_seconds, limit])


def drop_tombstones(*, limit: int) -> int:
    """Forget up to `limit` finished keys older than `TOMBSTONE_SECONDS`; return the count."""
    seconds = config().tombstone_seconds
    return _execute(queries.DROP_TOMBSTONES, [seconds, seconds, limit])


def drop_messages(*, limit: int) -> int:
    """Forget up to `limit` consumed messages older than `TOMBSTONE_SECONDS`; return the count."""
    return _execute(queries.DROP_MESSAGES, [config().tombstone_seconds, limit])


def note_reaping() -> None:
    """Record that a reaping has ended now."""
    _execute(queries.NOTE_REAPING, [uuid4().hex])


def rewrap(*, limit: int, after_id: int) -> tuple[int, int, Counter[str]]:
    """Wrap the data keys of up to `limit` stored answers under the newest of `BODY_KEYS`.

    Returns:
        How many were read; the number of the last entry, to go on after; and by key id, how many could not be
        opened and stay as they are: their key is not in `BODY_KEYS`, or they were changed.
    """
    newest = next(iter(config().body_keys), "")
    entries = (
        LedgerEntry.objects.filter(pk__gt=after_id, response_body__isnull=False)
        .exclude(body_key_id__in=["", newest])
        .order_by("pk")[:limit]
    )
    count, lost = 0, Counter[str]()
    for entry in entries.only("scope", "key", "response_body", "body_key_id"):
        after_id = entry.pk
        count += 1
        digest = digest_of(scope=entry.scope, key=entry.key)
        try:
            body, key_id = encryption.rewrap(
                bytes(entry.response_body or b""), key_id=entry.body_key_id, digest=digest
            )
        except encryption.EncryptionError:
            lost[entry.body_key_id] += 1
            continue
        # only the bytes that we read: a purge in between must stay one
        LedgerEntry.objects.filter(pk=entry.pk, body_key_id=entry.body_key_id, response_body__isnull=False).update(
            response_body=body, body_key_id=key_id
        )
    return count, after_id, lost


def _execute(statement: str, values: list[float] | list[str]) -> int:
    with home.connection().cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
