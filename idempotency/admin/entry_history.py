"""History of a ledger entry, for people."""

from dataclasses import dataclass
from datetime import datetime

from idempotency.models import LedgerEntry, Outcome
from idempotency.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line: when (aware), what, by whom, and a remark."""

    at: datetime
    what: str
    who: str = ""
    note: str = ""


def timeline(entry: LedgerEntry) -> list[Event]:
    """List claim, runs, decisions, answer and purge, the oldest first."""
    events = []
    if entry.mode == Mode.ATOMIC:
        events.append(Event(at=entry.created_at, what="executed in one transaction", who=entry.owner))
    for attempt in entry.attempts.order_by("fence"):
        ended = attempt.get_outcome_display()
        if attempt.outcome not in {Outcome.RESOLVED, Outcome.ABANDONED}:  # those are an operator's
            asked = f"request {attempt.request_id}" if attempt.request_id else ""
            run, ended = f"run {attempt.fence}", f"run {attempt.fence} {ended}"
            events.append(Event(at=attempt.started_at, what=f"{run} started", who=attempt.owner, note=asked))
        if attempt.ended_at is not None:
            events.append(Event(at=attempt.ended_at, what=ended, who=attempt.owner, note=attempt.note))
    if entry.finished_at is not None:
        events.append(Event(at=entry.finished_at, what=f"answer {entry.response_status} stored"))
    if entry.purged_at is not None:
        events.append(Event(at=entry.purged_at, what="bytes of the answer removed"))
    return sorted(events, key=lambda event: event.at)
