"""Queries of the ledger, each one statement."""

import json
from dataclasses import replace
from typing import Any

from idempotency.conf import config
from idempotency.ledger import queries
from idempotency.ledger.identity import Entry, Numbered
from idempotency.postgres import home
from idempotency.response.answers import StoredResponse, leaves_open

DIGITS = 10  # of a number in a key


def find(*, scope: str, key: str) -> Entry | None:
    row = home.row(queries.FIND, [config().body_seconds, scope, key])
    return None if row is None else entry_in(row)


def numbered_key(stem: str, number: int) -> str:
    """Build a key by digits of one width behind a letter: one order in every collation."""
    return f"{stem}{number:0{DIGITS}}"


def numbered(*, scope: str, stem: str, first: int = 0, limit: int = 1) -> list[Numbered]:
    """List the last `limit` entries under `stem` that are numbered from `first`, from the end."""
    rows = home.rows(queries.NUMBERED, [scope, numbered_key(stem, first), stem + "9" * DIGITS, limit])
    return [
        Numbered(int(key.removeprefix(stem)), bytes(content), leaves_open(status, json.loads(headers)), age)
        for key, content, status, headers, age in rows
    ]


def stalled(
    *,
    handlers: list[str],
    runs_max: int,
    asker: str,
    idle_seconds: float,
    longest_seconds: float,
    after_id: int,
    limit: int,
) -> list[Entry]:
    """List phased entries that no process runs and `handlers` can resume, the oldest first.

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
    which: list[Any] = [asker, asker, handlers, runs_max, idle_seconds, longest_seconds, after_id, limit]
    return [entry_in(row) for row in home.rows(queries.STALLED, [config().body_seconds, *which])]


def entry_in(row: Any) -> Entry:
    (entry_id, scope, key, fence, state, fingerprint, subject, handler, point, data) = row[:10]
    status, headers, body, body_key_id, fresh_seconds = row[10:]
    answer = None
    if status is not None:
        answer = StoredResponse(status=status, headers=json.loads(headers), body=None, body_key_id=body_key_id)
        age_seconds = config().body_seconds - fresh_seconds
        fresh_seconds = min(fresh_seconds, answer.lifetime_seconds - age_seconds)
        if body is not None and fresh_seconds > 0:
            answer = replace(answer, body=bytes(body))
    return Entry(
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
