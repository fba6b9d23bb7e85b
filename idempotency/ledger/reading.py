"""Queries of the ledger, each one statement."""

import json
from typing import Any

from django.db import connection

from idempotency.conf import config
from idempotency.ledger.identity import Found
from idempotency.models import LedgerAttempt, LedgerEntry
from idempotency.response.answers import StoredResponse

_TABLE = LedgerEntry._meta.db_table
_ATTEMPT = LedgerAttempt._meta.db_table

# not through the model: this is all the SQL of a replay, and the ORM would triple its cost
COLUMNS = """
id, scope, key, fence, state, fingerprint, subject, handler, recovery_point, recovery_data::text,
response_status, response_headers::text, response_body, body_key_id,
coalesce(%s - extract(epoch FROM statement_timestamp() - finished_at), 0)::float8
"""
FIND = f"SELECT {COLUMNS} FROM {_TABLE} WHERE scope = %s AND key = %s"  # noqa: S608  our own table's name
_STALLED = f"""
SELECT {COLUMNS} FROM {_TABLE} JOIN LATERAL (
    SELECT count(*) FILTER (WHERE starts_with(owner, %s) AND outcome IN ('failed', 'lost')) AS broken,
        count(*) FILTER (WHERE starts_with(owner, %s)) AS asked,
        max(ended_at) AS ended_at
    FROM {_ATTEMPT} WHERE entry_id = {_TABLE}.id
) AS runs ON true
WHERE state <> 'finished' AND mode = 'phased' AND handler = ANY(%s) AND broken < %s
  AND coalesce(lease_until, ended_at)
      < statement_timestamp() - least(%s * power(2, least(asked, 20)), %s) * interval '1 second'
  AND id > %s
ORDER BY id LIMIT %s
"""  # noqa: S608


def find(*, scope: str, key: str) -> Found | None:
    """Find the committed entry of (scope, key)."""
    with connection.cursor() as cursor:
        cursor.execute(FIND, [config().body_seconds, scope, key])
        row = cursor.fetchone()
    return None if row is None else found_in(row)


def stalled(
    *,
    handlers: list[str],
    runs_max: int,
    asker: str,
    idle_seconds: float,
    longest_seconds: float,
    after_id: int,
    limit: int,
) -> list[Found]:
    """List phased entries that no process runs and one of `handlers` can resume, the oldest first.

    Args:
        handlers: names of `Phases`.
        runs_max: entries with so many failed or lost runs of `asker` are left to a person.
        asker: prefix of the owner of our own runs; runs of clients do not count.
        idle_seconds: how long they must be left alone, so that a client's own retry comes first; doubled by each
            run of `asker`.
        longest_seconds: bound of that.
        after_id: only entries after this one, to go on with the next batch.
        limit: of the batch.
    """
    with connection.cursor() as cursor:
        which: list[Any] = [asker, asker, handlers, runs_max, idle_seconds, longest_seconds, after_id, limit]
        cursor.execute(_STALLED, [config().body_seconds, *which])
        return [found_in(row) for row in cursor.fetchall()]


def found_in(row: Any) -> Found:
    """Read the entry of a row of `COLUMNS`."""
    (entry_id, scope, key, fence, state, fingerprint, subject, handler, point, data) = row[:10]
    status, headers, body, body_key_id, fresh_seconds = row[10:]
    answer = None
    if status is not None:
        stored = None if body is None or fresh_seconds <= 0 else bytes(body)
        answer = StoredResponse(status=status, headers=json.loads(headers), body=stored, body_key_id=body_key_id)
    return Found(
        entry_id=entry_id,
        scope=scope,
        key=key,
        fence=fence,
        state=state,
        fingerprint=bytes(fingerprint),
        subject=subject,
        handler=handler,
        recovery_point=point,
        recovery_data=json.loads(data),
        answer=answer,
        fresh_seconds=fresh_seconds,
    )
