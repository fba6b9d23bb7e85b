"""Filters of large tables: each reads an index or a bounded number of rows."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from idempotency.admin import searching
from idempotency.admin.labels import label
from idempotency.ids import first_id
from idempotency.models import LedgerEntry, State

SPANS = {
    "1h": (_("last hour"), timedelta(hours=1)),
    "24h": (_("last 24 hours"), timedelta(hours=24)),
    "7d": (_("last 7 days"), timedelta(days=7)),
    "30d": (_("last 30 days"), timedelta(days=30)),
}


class Choice(admin.SimpleListFilter):
    """Filter by one of the offered values; none, or one typed by hand, filters nothing."""

    values: ClassVar[Mapping[str, Any]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(self.values.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        is_offered = self.value() in {value for value, _ in self.lookup_choices}
        return self.narrow(queryset, self.value() or "") if is_offered else queryset

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return those of `rows` that the offered `value` chooses."""
        raise NotImplementedError


class Span(Choice):
    values: ClassVar[Mapping[str, Any]] = {name: words for name, (words, _) in SPANS.items()}


class Opened(Span):
    """Filter by age, with which our primary keys begin (RFC 9562, version 7)."""

    title = _("opened at")
    parameter_name = "opened"

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(pk__gte=first_id(timezone.now() - SPANS[value][1]))


class Newest(Choice):
    """Filter among the newest rows; without `values`, by those of a column that leads an index."""

    field: ClassVar[str]
    by: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        if self.values:
            return super().lookups(request, model_admin)
        rows = model_admin.model._default_manager.all()
        return [(name, name) for name in searching.values_of(rows, self.field)]

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return searching.newest(rows, by=self.by).filter(**{self.field: value})


def newest(name: str, values: Sequence[tuple[str, Any]] = (), *, by: str = "pk") -> type[Newest]:
    """Make a filter by the field `name`, among the newest rows by the column `by`."""
    fields = {
        "title": of_newest(label(name)),
        "parameter_name": name,
        "field": name,
        "by": by,
        "values": dict(values),
    }
    return type(f"Newest{name.title()}", (Newest,), fields)


class NeedsAPerson(Choice):
    """Filter entries without a final answer by the reason."""

    title = _("needs a person")
    parameter_name = "open"
    values: ClassVar[Mapping[str, Any]] = {
        "uncertain": _("outcome unknown"),
        "stalled": _("nobody runs it"),
        "any": _("any unfinished"),
    }

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        stalled = Q(state=State.RUNNING, lease_until__lt=timezone.now())
        wanted = {"uncertain": Q(state=State.UNCERTAIN), "stalled": stalled, "any": Q()}[value]
        # by numbers, the longest open first: a list by number would walk past all that is finished
        still_open = LedgerEntry.objects.exclude(state=State.FINISHED).filter(wanted)
        return rows.filter(pk__in=searching.numbers_of(still_open, "state", "created_at"))


def of_newest(words: Any) -> Any:
    """Title a filter that looks through the newest rows alone."""
    return format_lazy(_("{field} (of the newest {most:,})"), field=words, most=searching.LOOKED_AT)
