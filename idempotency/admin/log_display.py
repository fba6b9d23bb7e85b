"""History and request log of a ledger entry, for people."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from idempotency.admin.labels import utc
from idempotency.conf import config
from idempotency.maintenance import request_log
from idempotency.maintenance.request_log import RequestLog, read_scope
from idempotency.models import Arrival, ArrivalOutcome, LedgerEntry, Outcome
from idempotency.modes import Mode

SESSION_SHOWN = 8  # characters of a session's digest


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


def table(entry: LedgerEntry) -> SafeString:
    """Show who calls what, each call under the key, the newest first, and what may be missing."""
    log = request_log.log_of(scope=entry.scope, key=entry.key)
    caller, call = called(entry, log)
    names = ("UTC", _("what became of it"), _("what differed"), _("address"), _("request id"))
    rows = [_row(entry, log, line, names) for line in log.lines]
    calls = format_html(
        '<table class="ledger-history ledger-calls"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>',
        format_html_join("", "<th>{}</th>", [(name,) for name in names]),
        format_html_join("", "<tr>{}</tr>", [(row,) for row in rows]),
    )
    head = _("%(call)s by %(caller)s") % {"call": call, "caller": name_of(caller)} if caller else call
    return format_html("<p>{}</p>{}<p>{}</p>", head, calls if rows else "", _remark(log))


def called(entry: LedgerEntry, log: RequestLog) -> tuple[str, str]:
    """Return the entry's caller and call, of a one-time token as the log has it."""
    caller, call = read_scope(entry.scope)
    if call != "token":
        return caller, call
    return caller, ", ".join(filter(None, [_("form, by one-time token"), log.call]))


def _row(entry: LedgerEntry, log: RequestLog, line: Arrival, names: tuple[str, ...]) -> SafeString:
    became = str(ArrivalOutcome(line.outcome).label)
    if line.outcome in {ArrivalOutcome.EXECUTED, ArrivalOutcome.REFUSED} and entry.response_status:
        became = f"{entry.response_status}: {became}"
    differed = ", ".join(log.changes.get(line.line_id, ()))
    cells = zip(names, (utc(line.at), became, differed, line.address, line.request_id), strict=True)
    return format_html_join("", '<td data-label="{}">{}</td>', cells)


def _remark(log: RequestLog) -> str:
    if not config().uses_redis:
        return _("Calls are not logged: the log needs Redis, and IDEMPOTENCY['REDIS'] names none.")
    if not log.is_current:
        return _("Redis does not answer: calls of the last minutes are missing here.")
    if not log.lines:
        return _("No call is in the log. Those before its first version, and those that Redis lost, are missing.")
    if len(log.lines) == request_log.SHOWN_MAX:
        return _("These are the newest. Calls that Redis lost are missing.")
    return _("Calls wait in Redis until a worker stores them; those that Redis lost are missing.")


def name_of(principal: str) -> str:
    kind, _colon, name = principal.partition(":")
    if kind == "user":
        user, number = user_of(name), _("user %(number)s") % {"number": name}
        return number if user is None else f"{user.get_username()} ({number})"
    if kind == "session":
        return _("a guest, session %(digest)s…") % {"digest": name[:SESSION_SHOWN]}
    return _("an anonymous caller") if kind == "anonymous" else principal


def user_of(number: str) -> Any:
    try:
        return get_user_model()._default_manager.filter(pk=number).first()
    except (ValueError, ValidationError):  # another kind of user had this number once; or one of a tenant
        return None
