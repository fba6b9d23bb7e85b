"""History of a ledger entry, for people."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from idempotency.models import LedgerEntry, Outcome
from idempotency.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Line of the history: when (aware), what, by whom, and a remark."""

    at: datetime
    what: str
    who: str = ""
    note: str = ""


def timeline(entry: LedgerEntry) -> list[Event]:
    """List claim, runs, decisions, answer and purge, the oldest first."""
    events = []
    if entry.mode == Mode.ATOMIC:
        events.append(Event(at=entry.created_at, what=_("executed in one transaction"), who=entry.owner))
    for attempt in entry.attempts.order_by("fence"):
        ended = attempt.get_outcome_display()
        if attempt.outcome not in {Outcome.RESOLVED, Outcome.ABANDONED}:  # those are an operator's
            asked = _("request %s") % attempt.request_id if attempt.request_id else ""
            started = _("run %(number)s started") % {"number": attempt.fence}
            ended = _("run %(number)s %(outcome)s") % {"number": attempt.fence, "outcome": ended}
            events.append(Event(at=attempt.started_at, what=started, who=attempt.owner, note=asked))
        if attempt.ended_at is not None:
            events.append(Event(at=attempt.ended_at, what=ended, who=attempt.owner, note=attempt.note))
    if entry.finished_at is not None:
        stored = _("answer %(status)s stored") % {"status": entry.response_status}
        events.append(Event(at=entry.finished_at, what=stored))
    if entry.purged_at is not None:
        events.append(Event(at=entry.purged_at, what=_("bytes of the answer removed")))
    return sorted(events, key=lambda event: event.at)
