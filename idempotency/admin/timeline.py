"""What happened to an entry, in order, for people."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import timezone

from idempotency.models import LedgerEntry, Outcome, State
from idempotency.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line: when (aware), what, by whom, and a remark."""

    at: datetime
    what: str
    who: str = ""
    note: str = ""


def utc(at: datetime | None) -> str:
    """Date and time to the second, as all pages of the ledger write them; a dash for None."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def condition(entry: LedgerEntry) -> str:
    """Its state, or `stalled`: running by its row, but its lease is over."""
    over = entry.lease_until is not None and entry.lease_until <= timezone.now()
    return "stalled" if entry.state == State.RUNNING and over else entry.state


def timeline(entry: LedgerEntry) -> list[Event]:
    """Claim, runs, decisions, answer, purge; the oldest first."""
    events = []
    if entry.mode == Mode.ATOMIC:
        events.append(Event(at=entry.created_at, what="executed in one transaction", who=entry.owner))
    for attempt in entry.attempts.order_by("fence"):
        by_hand = attempt.outcome in {Outcome.RESOLVED, Outcome.ABANDONED}
        if not by_hand:
            what = f"run {attempt.fence} started"
            asked = f"request {attempt.request_id}" if attempt.request_id else ""
            events.append(Event(at=attempt.started_at, what=what, who=attempt.owner, note=asked))
        if attempt.ended_at is not None:
            ended = (
                attempt.get_outcome_display()
                if by_hand
                else f"run {attempt.fence} {attempt.get_outcome_display()}"
            )
            events.append(Event(at=attempt.ended_at, what=ended, who=attempt.owner, note=attempt.note))
    if entry.finished_at is not None:
        events.append(Event(at=entry.finished_at, what=f"answer {entry.response_status} stored"))
    if entry.purged_at is not None:
        events.append(Event(at=entry.purged_at, what="bytes of the answer removed"))
    return sorted(events, key=lambda event: event.at)
