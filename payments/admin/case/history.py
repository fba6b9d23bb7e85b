"""History of a payment, for people: everything about it in order of time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.log_display import Event
from payments.admin.badges import book_name
from payments.admin.case.records import PaymentRows
from payments.admin.case.story import Case, Charge, Disputed, Return, Trade
from payments.admin.pages import page_of
from payments.channels.accounts import account_name
from payments.display import at_stake, money, refund_money, source_in_words, stored_text
from payments.models import (
    Anomaly,
    Attempt,
    AuditEntry,
    JournalEntry,
    Notification,
    Observation,
    Payment,
    PaymentEvent,
    Refund,
)
from payments.providers.base import FactKind
from payments.settlement.decision import reference_of
from payments.settlement.state import as_id
from payments.states import REFUNDED_BY_POLICY, AnomalyKind, AttemptStatus, RefundStatus

FOLDING = timedelta(seconds=1)  # a transaction that folds a notification is over in less
NOT_CREDITED = gettext_noop("NOT CREDITED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Event):
    """An event with the address of its row's page; its words never change later."""

    address: str = ""
    alarm: bool = False  # a person should look
    now: tuple[str, str] | None = None  # value and words of the row's present status
    moves_money: bool = False  # it is money, or about money on its way


def moments(rows: PaymentRows, *, currency: str, others: Iterable[Moment] = ()) -> list[Moment]:
    """List the moments, oldest first, merged with `others`; a transaction's in causal order."""
    all_moments = chain(
        others,
        chain.from_iterable(map(_of_attempt, rows.attempts)),
        (_of_notification(row, rows.facts) for row in rows.notifications),
        map(_of_fact, rows.facts),
        map(_of_entry, rows.entries),
        chain.from_iterable(map(_of_anomaly, rows.anomalies)),
        chain.from_iterable(map(_of_refund, rows.refunds)),
        chain.from_iterable(_of_event(event, currency) for event in rows.events),
        map(_of_audit_entry, rows.audit_entries),
    )
    return sorted(all_moments, key=lambda moment: moment.at)


def case_of(payment: Payment, rows: PaymentRows) -> Case:
    """Gather what is known about the payment's money; what two facts report, once."""
    moved = [fact for fact in rows.facts if fact.moved_minor or not fact.amount_minor]
    booked = [fact for fact in moved if fact.kind == FactKind.REFUNDED]
    reported = {fact.out_refund_no for fact in rows.facts if fact.kind == FactKind.REFUNDED}
    part_of_another = reported - {fact.out_refund_no for fact in booked}
    ours = {one: _return(one, booked) for one in rows.refunds if one.out_refund_no not in part_of_another}
    by_policy = {refund.anomaly_id: one for refund, one in ours.items()}
    filed = {anomaly.reference: anomaly for anomaly in rows.anomalies if anomaly.kind in REFUNDED_BY_POLICY}
    numbers = {refund.out_refund_no for refund in ours}
    return Case(
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        opened_at=payment.created_at,
        charges=tuple(_charge(fact, filed, by_policy) for fact in moved if fact.kind == FactKind.PAID),
        returns=(
            *(one for refund, one in ours.items() if refund.anomaly is None),
            *(_outside(fact) for fact in booked if fact.out_refund_no not in numbers),
        ),
        trades=tuple(map(_trade, rows.attempts)),
        disputes=tuple(_dispute(anomaly) for anomaly in rows.anomalies if anomaly.kind == AnomalyKind.DISPUTED),
    )


def _charge(fact: Any, filed: dict[str, Anomaly], by_policy: dict[int | None, Return]) -> Charge:
    known = {**_money(fact, fact.attempt.account, fact.observed_at), "amount_minor": fact.moved_minor}
    anomaly = None if fact.credited else filed.get(reference_of(fact.merchant, fact.provider_txn_id))
    if anomaly is None:
        return Charge(**known, credited=fact.credited)
    return Charge(
        **known,
        credited=False,
        kind=AnomalyKind(anomaly.kind),
        back=by_policy.get(anomaly.pk),
        needs_approval=anomaly.needs_approval,
    )


def _dispute(anomaly: Anomaly) -> Disputed:
    known = anomaly.detail
    due = known.get("respond_by")
    return Disputed(
        account=anomaly.channel,
        amount_minor=known["taken_minor"] - known["returned_minor"],
        currency=known["currency"],
        at=anomaly.created_at,
        **{name: known.get(name, "") for name in ("status", "reason")},
        respond_by=datetime.fromisoformat(due) if due else None,
    )


def _return(refund: Refund, booked: list[Any]) -> Return:
    """Describe a refund of ours by what is booked of it: its provider may report another sum."""
    ours = refund.out_refund_no, refund.currency
    of_it = [fact for fact in booked if (fact.out_refund_no, fact.currency) == ours]
    known = _money(refund, refund.attempt.account, of_it[-1].observed_at if of_it else refund.created_at)
    if of_it:
        known["amount_minor"] = -sum(fact.moved_minor for fact in of_it)
    return Return(**known, **_status(refund, RefundStatus))


def _outside(fact: Observation) -> Return:
    """A refund that was made in the provider's own pages."""
    return Return(**_money(fact, fact.attempt.account, fact.observed_at), status=RefundStatus.SUCCEEDED)


def _trade(row: Attempt) -> Trade:
    return Trade(**_money(row, row.account, row.expires_at), **_status(row, AttemptStatus))


def _money(row: Observation | Refund | Attempt, account: str, at: datetime) -> dict[str, Any]:
    return {"account": account, "amount_minor": row.amount_minor, "currency": row.currency, "at": at}


def _status(row: Refund | Attempt, statuses: type[StrEnum]) -> dict[str, Any]:
    return {"status": statuses(row.status), "message": stored_text(row.message), "due": row.next_query_at}


def _of_attempt(attempt: Attempt) -> Iterator[Moment]:
    moment, who = partial(Moment, address=page_of(attempt)), account_name(attempt.account)
    amount = money(attempt.amount_minor, attempt.currency)
    about = {"money": amount, "method": attempt.method, "number": attempt.out_trade_no}
    asked = _("%(money)s by %(method)s, number %(number)s") % about
    yield moment(at=attempt.created_at, what=_("%s attempt opened") % who, note=asked)
    if attempt.submitted_at is not None:
        sent, now = _("%s attempt submitted") % who, (attempt.status, attempt.get_status_display())
        failed = attempt.status in {AttemptStatus.FAILED, AttemptStatus.UNCERTAIN}
        yield moment(at=attempt.submitted_at, what=sent, who=who, alarm=failed, now=now)


def _received_at(row: Notification, facts: list[Observation]) -> datetime:
    """Return the notification's arrival: its row is written last, but it precedes its facts."""
    times = [
        fact.observed_at
        for fact in facts
        if fact.source == "notification"
        and fact.attempt_id == as_id(row.out_trade_no)
        and timedelta(0) <= row.received_at - fact.observed_at < FOLDING
    ]
    return min([*times, row.received_at])


def _of_notification(row: Notification, facts: list[Observation]) -> Moment:
    return Moment(
        at=_received_at(row, facts),
        what=_("notification %s") % row.event_type,
        who=account_name(row.account),
        address=page_of(row),
        alarm=row.verdict in {Notification.Verdict.ERROR, Notification.Verdict.QUARANTINED},
        now=(row.verdict, row.get_verdict_display()),
    )


def _of_fact(fact: Any) -> Moment:
    of = f"{money(fact.amount_minor, fact.currency)} " if fact.amount_minor else ""
    not_counted = bool(fact.moved_minor) and not fact.credited and fact.kind == FactKind.PAID
    return Moment(
        at=fact.observed_at,
        what=_("fact: %s") % f"{of}{fact.get_kind_display()}",
        who=account_name(fact.attempt.account),
        note=_("%(number)s, by %(source)s") % {"number": fact.provider_txn_id, "source": source_in_words(fact)},
        address=page_of(fact),
        alarm=not_counted,
        now=("held", NOT_CREDITED) if not_counted else None,
        moves_money=bool(of),
    )


def _of_entry(entry: JournalEntry) -> Moment:
    debit, credit = _("debit"), _("credit")
    sides = [
        f"{debit if line.amount_minor > 0 else credit} {book_name(line.account)} "
        f"{money(abs(line.amount_minor), line.currency)}"
        for line in sorted(entry.lines.all(), key=lambda line: -line.amount_minor)
    ]
    return Moment(at=entry.created_at, what=_("journal"), note="; ".join(sides), address=page_of(entry))


def _of_anomaly(anomaly: Anomaly) -> Iterator[Moment]:
    moment, is_open = partial(Moment, address=page_of(anomaly)), anomaly.resolved_at is None
    by_policy = anomaly.kind in REFUNDED_BY_POLICY and "approval" not in anomaly.detail
    then = _("goes back by policy") if by_policy else _("waits for a person")
    said = stored_text(anomaly.detail.get("message", ""))
    note = "; ".join(filter(None, [_("%s at stake") % at_stake(anomaly), then, said]))
    what, now = _("anomaly: %s") % anomaly.get_kind_display(), "open" if is_open else "resolved"
    yield moment(at=anomaly.created_at, what=what, note=note, alarm=is_open, now=(now, now), moves_money=True)
    if anomaly.resolved_at is not None:
        note = stored_text(anomaly.resolution)
        yield moment(at=anomaly.resolved_at, what=_("anomaly resolved"), note=note)


def _of_refund(refund: Refund) -> Iterator[Moment]:
    moment, now = partial(Moment, address=page_of(refund)), (refund.status, refund.get_status_display())
    what = (_("policy refund of %s") if refund.anomaly_id else _("refund of %s")) % refund_money(refund)
    note = _("number %s") % refund.out_refund_no + (f": {stored_text(refund.reason)}" if refund.reason else "")
    yield moment(at=refund.created_at, what=_("%s asked for") % what, note=note, now=now, moves_money=True)
    if refund.submitted_at is not None:
        who, alarm = account_name(refund.attempt.account), refund.status in {"failed", "uncertain"}
        yield moment(at=refund.submitted_at, what=_("%s sent") % what, who=who, alarm=alarm)


def _of_event(event: PaymentEvent, currency: str) -> Iterator[Moment]:
    moment = partial(Moment, address=page_of(event))
    what = _("event %(number)s: %(status)s") % {"number": event.number, "status": event.status_in_words}
    amounts = {"paid": money(event.paid_minor, currency), "refunded": money(event.refunded_minor, currency)}
    totals = _("paid %(paid)s, refunded %(refunded)s") % amounts
    waits = event.handled_at is None and event.attempts > 0
    now = ("failed", _("failed %s times") % event.attempts) if waits else None
    yield moment(at=event.created_at, what=what, note=totals, alarm=waits, now=now)
    if event.handled_at is not None:
        yield moment(at=event.handled_at, what=_("event %s handled") % event.number)


def _of_audit_entry(entry: AuditEntry) -> Moment:
    about = apps.get_model("payments", entry.subject.partition(":")[0])._meta.verbose_name
    return Moment(at=entry.created_at, what=_("operator, %s") % about, who=entry.operator, note=entry.message)
