"""Filters of lists about money that stay fast on large tables."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin import searching
from idempotency.admin.filters import SPANS, Choice, Span, newest, of_newest
from payments.admin.badges import book_name
from payments.channels import accounts
from payments.channels import configured as channels
from payments.channels.accounts import account_name, provider_name
from payments.conf import config
from payments.models import JournalEntry, JournalLine
from payments.operations import worklist
from payments.providers import registry


class AtChannel(newest("channel", ())):  # type: ignore[misc]
    """Filter the newest rows by provider."""

    title = of_newest(_("provider"))

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, provider_name(name)) for name in channels.names()]


class AtAccount(Choice):
    """Filter attempts or notifications by merchant account, among the newest."""

    title = of_newest(_("merchant account"))
    parameter_name = "account"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, account_name(name)) for name in sorted({*registry.names(), *config().providers})]

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return searching.newest(rows).filter(accounts.at(value))


class Unanswered(Choice):
    """Filter attempts or refunds that wait for a person, as the desk counts them."""

    title = _("answer of the provider")
    parameter_name = "answer"
    values: ClassVar[dict[str, Any]] = {"none": _("none yet")}

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(pk__in=searching.numbers_of(worklist.unanswered(rows), "next_query_at"))


class Booked(Span):
    """Filter the journal's newest entries or lines by age; they are numbered in booking order."""

    title = format_lazy(_("booked at (of the newest {most:,} entries)"), most=searching.LOOKED_AT)
    parameter_name = "booked"

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        since = timezone.now() - SPANS[value][1]
        entries = searching.newest(JournalEntry.objects.filter(created_at__gte=since))
        first = entries.order_by("pk").values_list("pk", flat=True).first()
        number = "pk__gte" if rows.model is JournalEntry else "entry_id__gte"
        return rows.none() if first is None else rows.filter(**{number: first})


class Account(Choice):
    """Filter the journal's newest lines, or their entries, by account."""

    title = format_lazy(_("account (of the newest {most:,} lines)"), most=searching.LOOKED_AT)
    parameter_name = "account"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, book_name(name)) for name in searching.values_of(JournalLine.objects.all(), "account")]

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        wanted = Q(account=value)
        if rows.model is JournalEntry:  # those of the newest that have such a line
            wanted = Q(pk__in=searching.newest(JournalLine.objects.filter(wanted)).values("entry_id"))
        return searching.newest(rows).filter(wanted)


class ToDo(admin.SimpleListFilter):
    """Filter by resolution: what is open, unless something else is asked for."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("settled", _("resolved")), ("all", _("all"))]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        return [{**first, "display": gettext("open")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "all":
            return queryset
        return queryset.filter(resolved_at__isnull=self.value() != "settled")


class Waiting(Choice):
    """Filter events that the shop has not handled; they have an index of their own."""

    title = _("handled")
    parameter_name = "waiting"
    values: ClassVar[dict[str, Any]] = {"1": _("still waiting")}

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(handled_at__isnull=True)
