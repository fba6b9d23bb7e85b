"""Filters of the admin's lists that stay fast on large tables: each reads an index or a bounded number of rows."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from idempotency.admin import searching
from idempotency.models import ConsumedMessage, LedgerEntry, State


def is_offered(chosen: admin.SimpleListFilter) -> bool:
    """Whether its value in the address is one of those it offers, and none or something typed by hand."""
    return chosen.value() in {value for value, _ in chosen.lookup_choices}


class Newest(admin.SimpleListFilter):
    """By a field without an index, among the newest rows alone."""

    field: ClassVar[str]
    by: ClassVar[str]
    values: ClassVar[Sequence[tuple[str, Any]]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(self.values)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not is_offered(self):
            return queryset
        return searching.newest(queryset, by=self.by).filter(**{self.field: self.value()})


def newest(name: str, values: Sequence[tuple[str, Any]], *, by: str = "pk") -> type[Newest]:
    """A filter by the field `name` with these values and their words, among the newest rows by the column `by`."""
    about = f"{name.replace('_', ' ')} (of the newest {searching.LOOKED_AT:,})"
    fields = {"title": about, "parameter_name": name, "field": name, "by": by, "values": values}
    return type(f"Newest{name.title()}", (Newest,), fields)


class NeedsAPerson(admin.SimpleListFilter):
    """Entries without a final answer, by what keeps them open."""

    title = "needs a person"
    parameter_name = "open"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("uncertain", "outcome unknown"), ("stalled", "nobody runs it"), ("any", "any unfinished")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        stalled = Q(state=State.RUNNING, lease_until__lt=timezone.now())
        wanted = {"uncertain": Q(state=State.UNCERTAIN), "stalled": stalled, "any": Q()}
        if self.value() not in wanted:
            return queryset
        # by numbers, the longest open first: a list by number would walk past all that is finished
        still_open = LedgerEntry.objects.exclude(state=State.FINISHED).filter(wanted[self.value() or ""])
        return queryset.filter(pk__in=searching.numbers_of(still_open, "state", "created_at"))


class Consumer(admin.SimpleListFilter):
    """Consumed messages by who applied them, the newest."""

    title = f"consumer (of the newest {searching.LOOKED_AT:,})"
    parameter_name = "consumer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in searching.values_of(ConsumedMessage.objects.all(), "consumer")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ConsumedMessage]) -> QuerySet[ConsumedMessage]:
        return searching.newest(queryset).filter(consumer=self.value()) if is_offered(self) else queryset
