"""Figures of the ledger for metrics and admin, each by one statement over an index."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Case, Count, Q, Value, When
from django.db.models.functions import TruncHour
from django.utils import timezone

from idempotency.models import LedgerEntry, State
from idempotency.postgres import home

HOURS_SHOWN = 48
NEWEST_MAX = 50_000  # rows that a chart by the hour reads

ByHour = dict[datetime, dict[str, int]]

# entries without a final answer, by what becomes of them
_OPEN = """
SELECT CASE WHEN state = 'uncertain' THEN 'uncertain'
            WHEN lease_until <= statement_timestamp() THEN 'stalled' ELSE 'running' END AS name,
       count(*), extract(epoch FROM statement_timestamp() - min(created_at))::float8
FROM idempotency_ledgerentry WHERE state <> 'finished' GROUP BY name
"""
# the last reaping
_REAPED = "SELECT extract(epoch FROM statement_timestamp() - reaped_at)::float8 FROM idempotency_ledgerepoch"


@dataclass(frozen=True, slots=True)
class OpenEntries:
    """Count `uncertain`, `stalled` (nobody runs them) and `running` entries; oldest age."""

    name: str
    count: int
    oldest_seconds: float


def open_entries() -> list[OpenEntries]:
    """Count all three, zeros included."""
    found = {row[0]: OpenEntries(*row) for row in home.rows(_OPEN)}
    return [found.get(name, OpenEntries(name, 0, 0.0)) for name in ("uncertain", "stalled", "running")]


def seconds_since_reaping() -> float | None:
    """Return the age of the last reaping, or of the ledger; None right after a `flush`."""
    row = home.row(_REAPED)
    return row[0] if row else None


def executed_by_hour() -> ByHour:
    """Count the newest entries by hour and outcome: `executed`, `refused`, `unfinished`.

    Every hour is there, the oldest first. Replays and conflicts leave no row; Prometheus counts them.
    """
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    found: ByHour = {this_hour - timedelta(hours=before): {} for before in reversed(range(HOURS_SHOWN))}
    numbers = LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True)
    before_newest = next(iter(numbers[NEWEST_MAX : NEWEST_MAX + 1]), 0)
    outcome = Case(
        When(~Q(state=State.FINISHED), then=Value("unfinished")),
        When(response_status__gte=400, then=Value("refused")),
        default=Value("executed"),
    )
    recent = LedgerEntry.objects.filter(pk__gt=before_newest, created_at__gte=next(iter(found))).order_by()
    by_hour = recent.annotate(hour=TruncHour("created_at", tzinfo=UTC), outcome=outcome)
    rows = by_hour.values_list("hour", "outcome")
    for hour, what, count in rows.annotate(count=Count("pk")):
        if hour in found:  # one may have begun since
            found[hour][what] = count
    return found
