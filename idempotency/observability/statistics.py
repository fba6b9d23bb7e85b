"""Figures of the ledger for metrics and admin: each one statement over an index, never a count of everything."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from idempotency.models import LedgerEntry, LedgerTally, State

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
    """Count all three, zeros included."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        found = {row[0]: OpenEntries(*row) for row in cursor.fetchall()}
    return [found.get(name, OpenEntries(name, 0, 0.0)) for name in ("uncertain", "stalled", "running")]


def tallied(*, hours: int) -> dict[datetime, dict[str, int]]:
    """Read the counts of the last `hours` hours, the current one included: hour → what → how often."""
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    found: dict[datetime, dict[str, int]] = {
        this_hour - timedelta(hours=back): {} for back in reversed(range(hours))
    }
    rows = LedgerTally.objects.filter(hour__gte=Now() - timedelta(hours=hours))
    for hour, what, count in rows.values_list("hour", "what", "count"):
        if hour in found:
            found[hour][what] = count
    return found


def oldest_open(*, limit: int) -> list[LedgerEntry]:
    """List unfinished entries, the oldest first."""
    return list(LedgerEntry.objects.exclude(state=State.FINISHED).order_by("created_at")[:limit])
