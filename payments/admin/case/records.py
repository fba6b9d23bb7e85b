"""Records of a payment, read once for its case file."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

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
from payments.operations import figures
from payments.settlement.decision import reference_of
from payments.states import AnomalyKind

MOST = 200  # rows of each kind; a payment with more has had the same notification very often


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentRows:
    """Rows about one payment, read once, at most `MOST` of each kind."""

    attempts: list[Attempt]
    facts: list[Any]  # with `moved_minor`
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
    known = Observation.objects.filter(attempt__in=attempts).annotate(moved_minor=figures.moved())
    facts: list[Any] = list(known.select_related("attempt").order_by("id")[:MOST])
    entries = JournalEntry.objects.filter(observation__in=facts).order_by("id").prefetch_related("lines")
    numbers = [attempt.out_trade_no for attempt in attempts]
    received = Notification.objects.filter(out_trade_no__in=numbers).defer("body", "headers").order_by("id")
    notifications = list(received[:MOST])
    refunds = payment.refunds.select_related("anomaly", "payment", "attempt").order_by("created_at", "id")
    anomalies = list(_anomalies(payment, facts, notifications)[:MOST])
    subjects = [subject_of(row) for row in (payment, *notifications, *anomalies)]
    return PaymentRows(
        attempts=attempts,
        facts=facts,
        entries=list(entries),
        notifications=notifications,
        refunds=list(refunds[:MOST]),
        events=list(payment.events.order_by("number")[:MOST]),
        anomalies=anomalies,
        audit_entries=list(AuditEntry.objects.filter(subject__in=subjects).order_by("created_at", "pk")[:MOST]),
    )


def _anomalies(payment: Payment, facts: list[Observation], notifications: list[Notification]) -> QuerySet[Anomaly]:
    """Select rows filed under the payment, or under a fact or notification about it."""
    channels = {fact.channel for fact in facts} | {row.channel for row in notifications}
    of_facts = [reference_of(fact.merchant, fact.provider_txn_id) for fact in facts]
    ids = [row.notification_id for row in notifications]
    about = Q(payment=payment)
    about |= Q(kind=AnomalyKind.CONTENT_CHANGED, channel__in=channels, reference__in=[*of_facts, *ids])
    about |= Q(kind=AnomalyKind.NOTIFICATION_FAILED, channel__in=channels, reference__in=ids)
    return Anomaly.objects.filter(about).select_related("payment", "refund", "refund__payment").order_by("id")
