"""Labels that all pages of the ledger write alike."""

from datetime import UTC, datetime

from django.utils import timezone

from idempotency.models import LedgerEntry, State


def utc(at: datetime | None) -> str:
    """Write date and time to the second; a dash for None."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def condition(entry: LedgerEntry) -> str:
    """Return the entry's state, or `stalled`: running by its row, but its lease is over."""
    over = entry.lease_until is not None and entry.lease_until <= timezone.now()
    return "stalled" if entry.state == State.RUNNING and over else entry.state
