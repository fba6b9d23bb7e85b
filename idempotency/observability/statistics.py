"""Figures of the ledger for metrics and admin: each one statement over an index, never a count of everything."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Case, Count, Q, Value, When
from django.db.models.functions import TruncHour
from django.utils import timezone

from idempotency.models import LedgerEntry, State

NEWEST_MAX = 50_000  # rows that a chart by the hour reads

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


def executed_by_hour(*, hours: int) -> dict[datetime, dict[str, int]]:
    """Count the newest `NEWEST_MAX` entries of the last `hours` hours: hour → outcome → number.

    The outcome is `executed`, `refused` (4xx) or `unfinished`. Replays and conflicts leave no row; Prometheus
    counts them.
    """
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    shown = [this_hour - timedelta(hours=back) for back in reversed(range(hours))]
    found: dict[datetime, dict[str, int]] = {hour: {} for hour in shown}
    keys = LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True)
    beyond = next(iter(keys[NEWEST_MAX : NEWEST_MAX + 1]), 0)
    outcome = Case(
        When(~Q(state=State.FINISHED), then=Value("unfinished")),
        When(response_status__gte=400, then=Value("refused")),
        default=Value("executed"),
    )
    recent = LedgerEntry.objects.filter(pk__gt=beyond, created_at__gte=shown[0]).order_by()
    rows = recent.annotate(hour=TruncHour("created_at"), outcome=outcome).values_list("hour", "outcome")
    for hour, what, count in rows.annotate(count=Count("pk")):
        if hour in found:
            found[hour][what] = count
    return found


def oldest_open(*, limit: int) -> list[LedgerEntry]:
    """List unfinished entries, the oldest first."""
    return list(LedgerEntry.objects.exclude(state=State.FINISHED).order_by("created_at")[:limit])
