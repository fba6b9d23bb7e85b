"""Figures of the ledger for metrics and admin: each one statement over an index, never a count of everything."""

from dataclasses import dataclass

from django.db import connection

from idempotency.models import LedgerEntry, State

_TABLE = LedgerEntry._meta.db_table

_OPEN = f"""
SELECT CASE WHEN state = '{State.UNCERTAIN.value}' THEN 'uncertain'
            WHEN lease_until <= statement_timestamp() THEN 'stalled' ELSE 'running' END AS name,
       count(*), extract(epoch FROM statement_timestamp() - min(created_at))::float8
FROM {_TABLE} WHERE state <> '{State.FINISHED.value}' GROUP BY name
"""  # noqa: S608  our own table's name


@dataclass(frozen=True, slots=True)
class OpenEntries:
    """Entries without a final answer: `uncertain`, `stalled` (nobody runs them) or `running`; oldest's age."""

    name: str
    count: int
    oldest_seconds: float


def open_entries() -> list[OpenEntries]:
    """All three, zeros included."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        found = {row[0]: OpenEntries(*row) for row in cursor.fetchall()}
    return [found.get(name, OpenEntries(name, 0, 0.0)) for name in ("uncertain", "stalled", "running")]
