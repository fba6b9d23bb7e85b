"""History of a payment, for people: everything about it in order of time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.db import models
from django.db.models import Q

from idempotency.admin.entry_history import Event
from payments.admin.pages import page_of
from payments.display import at_stake, money, policy, refund_money
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
from payments.models.audit import subject_of
from payments.operations.actions import ATTEMPT_IS
from payments.providers.base import FactKind
from payments.settlement.state import as_id
from payments.states import LIVE_ATTEMPTS, AttemptStatus

FOLDING = timedelta(seconds=1)  # a transaction that folds a notification is over in less
MOST = 200  # rows of each kind; a payment with more has had the same notification very often

Kind = Anomaly.Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Event):
    """An event with the address of its row's page; `alarm` if a person should look."""

    address: str = ""
    alarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentRows:
    """Rows about one payment, read once, at most `MOST` of each kind."""

    attempts: list[Attempt]
    facts: list[Observation]
    entries: list[JournalEntry]
    notifications: list[Notification]
    refunds: list[Refund]
    events: list[PaymentEvent]
    anomalies: list[Anomaly]
    audit_entries: list[AuditEntry]

    @property
    def is_cut(self) -> bool:
        """True if there may be more rows than shown."""
        counts = [len(self.facts), len(self.notifications), len(self.refunds), len(self.anomalies)]
        return max(counts) >= MOST


def read(payment: Payment) -> PaymentRows:
    """Read the rows in nine statements over indexes, however many payments there are."""
    attempts = list(payment.attempts.order_by("id")[:MOST])
    facts = list(Observation.objects.filter(attempt__in=attempts).order_by("id")[:MOST])
    entries = JournalEntry.objects.filter(observation__in=facts).order_by("id").prefetch_related("lines")
    numbers = [attempt.out_trade_no for attempt in attempts]
    received = Notification.objects.filter(out_trade_no__in=numbers).defer("body", "headers").order_by("id")
    notifications = list(received[:MOST])
    refunds = payment.refunds.select_related("anomaly", "payment", "attempt").order_by("created_at", "id")
    anomalies = list(_anomalies(payment, facts, notifications)[:MOST])
    return PaymentRows(
        attempts=attempts,
        facts=facts,
        entries=list(entries),
        notifications=notifications,
        refunds=list(refunds[:MOST]),
        events=list(payment.events.order_by("number")[:MOST]),
        anomalies=anomalies,
        audit_entries=list(_audit_entries([payment, *notifications, *anomalies])[:MOST]),
    )


def moments(rows: PaymentRows, *, currency: str) -> list[Moment]:
    """List the moments, the oldest first; those of one transaction in causal order."""
    all_moments = chain(
        chain.from_iterable(map(_of_attempt, rows.attempts)),
        chain.from_iterable(_of_notification(row, rows.facts) for row in rows.notifications),
        map(_of_fact, rows.facts),
        map(_of_entry, rows.entries),
        chain.from_iterable(map(_of_anomaly, rows.anomalies)),
        chain.from_iterable(map(_of_refund, rows.refunds)),
        chain.from_iterable(_of_event(event, currency) for event in rows.events),
        map(_of_audit_entry, rows.audit_entries),
    )
    return sorted(all_moments, key=lambda moment: moment.at)


def _anomalies(
    payment: Payment, facts: list[Observation], notifications: list[Notification]
) -> models.QuerySet[Anomaly]:
    """Select those filed under the payment, or under the name of a fact or notification about it."""
    channels = {fact.channel for fact in facts} | {row.channel for row in notifications}
    of_facts = [f"{fact.merchant}/{fact.provider_txn_id}" for fact in facts]
    ids = [row.notification_id for row in notifications]
    about = Q(payment=payment)
    about |= Q(kind=Kind.CONTENT_CHANGED, channel__in=channels, reference__in=[*of_facts, *ids])
    about |= Q(kind=Kind.NOTIFICATION_FAILED, channel__in=channels, reference__in=ids)
    return Anomaly.objects.filter(about).select_related("payment", "refund", "refund__payment").order_by("id")


def _audit_entries(rows: list[models.Model]) -> models.QuerySet[AuditEntry]:
    """Select operators' acts about any of the rows, the oldest first."""
    return AuditEntry.objects.filter(subject__in=[subject_of(row) for row in rows]).order_by("created_at", "pk")


def _of_attempt(attempt: Attempt) -> Iterator[Moment]:
    name, address = f"{attempt.channel} attempt", page_of(attempt)
    asked = f"{money(attempt.amount_minor, attempt.currency)} by {attempt.method}, number {attempt.out_trade_no}"
    yield Moment(at=attempt.created_at, what=f"{name} opened", note=asked, address=address)
    if attempt.submitted_at is not None:
        # how it ended otherwise is a fact of its own, with its own time
        shown_here = {*LIVE_ATTEMPTS, AttemptStatus.FAILED}
        note = ATTEMPT_IS[AttemptStatus(attempt.status)] if attempt.status in shown_here else ""
        failed = attempt.status in {AttemptStatus.FAILED, AttemptStatus.UNCERTAIN}
        why = f" ({attempt.message})" if attempt.message else ""
        yield Moment(
            at=attempt.submitted_at,
            what=f"{name} submitted",
            who=attempt.channel,
            note=note + why,
            address=address,
            alarm=failed,
        )


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


def _of_notification(row: Notification, facts: list[Observation]) -> Iterator[Moment]:
    bad = row.verdict in {Notification.Verdict.ERROR, Notification.Verdict.QUARANTINED}
    note = f"{row.get_verdict_display()}{': ' if row.detail else ''}{row.detail}"
    what = f"notification {row.event_type}"
    received_at = _received_at(row, facts)
    yield Moment(at=received_at, what=what, who=row.channel, note=note, address=page_of(row), alarm=bad)
    if row.attempts > 1 and row.processed_at is not None:
        again = f"notification {row.event_type} processed again"
        yield Moment(at=row.processed_at, what=again, note=f"{row.attempts} times so far", address=page_of(row))


def _of_fact(fact: Observation) -> Moment:
    of = f"{money(fact.amount_minor, fact.currency)} " if fact.amount_minor else ""
    doubt = ""
    if of and not fact.credited:
        doubt = "NOT CREDITED; " if fact.kind == FactKind.PAID else "of money that is not credited; "
    return Moment(
        at=fact.observed_at,
        what=f"fact: {of}{fact.kind}",
        who=fact.channel,
        note=f"{doubt}{fact.provider_txn_id}, by {fact.source}",
        address=page_of(fact),
        alarm=bool(doubt) and fact.kind == FactKind.PAID,
    )


def _of_entry(entry: JournalEntry) -> Moment:
    sides = [
        f"{'debit' if line.amount_minor > 0 else 'credit'} {line.account} "
        f"{money(abs(line.amount_minor), line.currency)}"
        for line in sorted(entry.lines.all(), key=lambda line: -line.amount_minor)
    ]
    return Moment(at=entry.created_at, what="journal", note="; ".join(sides), address=page_of(entry))


def _of_anomaly(anomaly: Anomaly) -> Iterator[Moment]:
    note = f"{at_stake(anomaly)} at stake; {policy(anomaly)}"
    what, address = f"anomaly: {anomaly.get_kind_display()}", page_of(anomaly)
    open_still = anomaly.resolved_at is None
    yield Moment(at=anomaly.created_at, what=what, note=note, address=address, alarm=open_still)
    if anomaly.resolved_at is not None:
        yield Moment(at=anomaly.resolved_at, what="anomaly resolved", note=anomaly.resolution, address=address)


def _of_refund(refund: Refund) -> Iterator[Moment]:
    kind = "policy refund" if refund.anomaly_id else "refund"
    what, address = f"{kind} of {refund_money(refund)}", page_of(refund)
    note = f"number {refund.out_refund_no}{': ' if refund.reason else ''}{refund.reason}"
    yield Moment(at=refund.created_at, what=f"{what} asked for", note=note, address=address)
    if refund.submitted_at is not None:
        now = f"{refund.get_status_display()}{': ' if refund.message else ''}{refund.message}"
        who, alarm = refund.attempt.channel, refund.status in {"failed", "uncertain"}
        yield Moment(at=refund.submitted_at, what=f"{what} sent", who=who, note=now, address=address, alarm=alarm)


def _of_event(event: PaymentEvent, currency: str) -> Iterator[Moment]:
    what, address = f"event {event.number}: {event.status.replace('_', ' ')}", page_of(event)
    totals = f"paid {money(event.paid_minor, currency)}, refunded {money(event.refunded_minor, currency)}"
    waits = event.handled_at is None and event.attempts > 0
    trouble = f"; handling it failed {event.attempts} times" if event.attempts else ""
    yield Moment(at=event.created_at, what=what, note=totals + trouble, address=address, alarm=waits)
    if event.handled_at is not None:
        yield Moment(at=event.handled_at, what=f"event {event.number} handled", address=address)


def _of_audit_entry(entry: AuditEntry) -> Moment:
    about = entry.subject.partition(":")[0]
    return Moment(at=entry.created_at, what=f"operator, {about}", who=entry.operator, note=entry.message)
