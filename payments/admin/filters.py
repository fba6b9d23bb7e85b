"""Filters that stay fast on large tables: each reads an index, or a bounded number of rows."""

import uuid
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from idempotency.admin import searching
from idempotency.admin.filters import is_offered
from payments.models import Anomaly, JournalEntry, JournalLine, PaymentEvent
from payments.settlement.journal import provider_account

CHANNELS = [(name, name) for name in ("wechat", "alipay", "stripe")]

SPANS = {
    "1h": ("last hour", timedelta(hours=1)),
    "24h": ("last 24 hours", timedelta(hours=24)),
    "7d": ("last 7 days", timedelta(days=7)),
    "30d": ("last 30 days", timedelta(days=30)),
}


class Opened(admin.SimpleListFilter):
    """By age, read off the primary key: our numbers begin with their time (RFC 9562, version 7)."""

    title = "opened"
    parameter_name = "opened"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, words) for name, (words, _) in SPANS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in SPANS:
            return queryset
        since = timezone.now() - SPANS[self.value() or ""][1]
        return queryset.filter(pk__gte=uuid.UUID(int=int(since.timestamp() * 1000) << 80))


class Booked(admin.SimpleListFilter):
    """The journal's newest entries, or their lines, by age: it is numbered in the order in which it is booked."""

    title = f"booked (of the newest {searching.LOOKED_AT:,} entries)"
    parameter_name = "booked"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, words) for name, (words, _) in SPANS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not is_offered(self):
            return queryset
        since = timezone.now() - SPANS[self.value() or ""][1]
        entries = searching.newest(JournalEntry.objects.filter(created_at__gte=since))
        first = entries.order_by("pk").values_list("pk", flat=True).first()
        number = "pk__gte" if queryset.model is JournalEntry else "entry_id__gte"
        return queryset.none() if first is None else queryset.filter(**{number: first})


class Account(admin.SimpleListFilter):
    """The journal's newest lines, or the entries that they are of, by account."""

    title = f"account (of the newest {searching.LOOKED_AT:,} lines)"
    parameter_name = "account"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in searching.values_of(JournalLine.objects.all(), "account")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return _with_line(queryset, Q(account=self.value())) if is_offered(self) else queryset


class AtProvider(admin.SimpleListFilter):
    """The same by the channel at whose provider the account is."""

    title = f"channel (of the newest {searching.LOOKED_AT:,} lines)"
    parameter_name = "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return CHANNELS

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = Q(account__startswith=provider_account(channel=self.value() or "", merchant=""))
        return _with_line(queryset, wanted) if is_offered(self) else queryset


def _with_line(rows: QuerySet[Any], wanted: Q) -> QuerySet[Any]:
    """Of the journal's newest lines those that are `wanted`, or of its newest entries those with such a line."""
    if rows.model is JournalEntry:
        wanted = Q(pk__in=searching.newest(JournalLine.objects.filter(wanted)).values("entry_id"))
    return searching.newest(rows).filter(wanted)


class ToDo(admin.SimpleListFilter):
    """Anomalies: what is open, unless something else is asked for."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("settled", "settled"), ("all", "all")]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        return [{**first, "display": "open"}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Anomaly]) -> QuerySet[Anomaly]:
        if self.value() == "all":
            return queryset
        return queryset.filter(resolved_at__isnull=self.value() != "settled")


class Waiting(admin.SimpleListFilter):
    """Events that nobody has acted on; they have an index of their own."""

    title = "acted on"
    parameter_name = "waiting"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "still waiting")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[PaymentEvent]) -> QuerySet[PaymentEvent]:
        return queryset.filter(handled_at__isnull=True) if self.value() == "1" else queryset
