"""Read-only pages of the admin, the ledger's and those of the apps above it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from idempotency.admin.labels import label, utc

COUNTED_MAX = 10_000
PAGED_MAX = 100_000  # PostgreSQL reads all rows before a page; what is further down is searched or filtered for


def reason_field(help_text: Any, *, max_length: int | None = None) -> forms.CharField:
    area = forms.Textarea(attrs={"rows": 3, "cols": 70})
    return forms.CharField(label=_("Reason"), max_length=max_length, widget=area, help_text=help_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    address: str
    words: Any


class FilteredList(ChangeList):
    """List with no lookup but its filters': another could guess at columns that no page shows."""

    def get_filters(self, request: HttpRequest) -> Any:
        """Allow the filters' lookups. Raises DisallowedModelAdminLookup for any other."""
        try:
            filters = super().get_filters(request)
        except (ValueError, OverflowError) as error:  # the year after 9999
            raise IncorrectLookupParameters(error) from error
        # a filter's own column alone means as much as its `__exact`
        columns = {one[0] if isinstance(one, tuple) else one for one in self.list_filter}
        if left := filters[2].keys() - {*getattr(self.model_admin, "linked", ()), *columns}:
            raise DisallowedModelAdminLookup(f"Filtering by {', '.join(sorted(left))} not allowed")
        return filters


class OwnFilters:
    """Mixin, before `ModelAdmin`, of a page whose list takes no lookup but its filters'."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return FilteredList


class UnsortedList(FilteredList):
    """List in its page's own order, also where an address asks for another one (`?o=`)."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


class EstimatingPaginator(Paginator):  # type: ignore[type-arg]
    """Paginator that counts up to `COUNTED_MAX`; a longer table is estimated by PostgreSQL.

    Pages of a filtered list end at that bound, so that a longer one is filtered further; those of a whole table
    end at `PAGED_MAX` rows.
    """

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        counted = int(rows[: COUNTED_MAX + 1].count())
        if counted <= COUNTED_MAX:
            return counted
        if rows.query.where:
            return COUNTED_MAX
        return max(COUNTED_MAX, _estimate(rows.model._meta.db_table, using=rows.db))

    @cached_property
    def num_pages(self) -> int:
        return min(super().num_pages, ceil(PAGED_MAX / self.per_page))


def _estimate(table: str, *, using: str) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [f'"{table}"'])
        return int(cursor.fetchone()[0])


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages without adding, changing or deleting; large tables are neither counted nor sorted.

    Attributes:
        is_decided_about: operators decide about the rows, so their page links to `history_view`.
        appears: sentence of an empty list: what will stand there, and when.
        linked: lookups that other pages link to, and a date hierarchy's.
    """

    paginator = EstimatingPaginator
    show_facets = admin.ShowFacets.NEVER
    # by a column without an index, PostgreSQL would sort the whole table
    sortable_by: ClassVar[tuple[str, ...] | None] = ()
    show_full_result_count = False
    list_per_page = 50
    change_form_template = "admin/idempotency/detail.html"
    change_list_template = "admin/idempotency/list.html"
    object_history_template = "admin/idempotency/object_history.html"
    is_decided_about: ClassVar[bool] = False
    appears: ClassVar[Any] = ""
    linked: ClassVar[tuple[str, ...]] = ()

    class Media:
        css = {"all": ["idempotency/admin.css"]}

    def nobody_may(self, request: HttpRequest, obj: Any = None) -> bool:
        """Answer for every permission that could change a row."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = nobody_may

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UnsortedList

    def lacks(self, request: HttpRequest, permission: str = "") -> str:
        """Name the permission that the user lacks to see the rows or do this; empty if none."""
        wanted = f"{self.opts.app_label}.{permission}"
        if not self.has_view_permission(request):
            return f"{self.opts.app_label}.view_{self.opts.model_name}"
        return "" if not permission or request.user.has_perm(wanted) else wanted

    def require(self, request: HttpRequest, permission: str = "") -> None:
        """Refuse users without it before a row is read. Raises PermissionDenied, naming it."""
        if lacking := self.lacks(request, permission):
            raise PermissionDenied(_("Your account needs the permission %s for this.") % lacking)

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        """List the buttons of a row's page that the user may press."""
        return []

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        return []

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id) if self.has_view_permission(request) else None
        tools = [] if row is None else self.tools(request, row)
        own = {"tools": tools, "has_history": self.is_decided_about, "subtitle": None}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **own})

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = str(self.model._meta.verbose_name_plural).capitalize()
        own = {"tools": self.list_tools(request), "title": title}
        return super().changelist_view(request, {**(extra_context or {}), **own})

    def own_page(self, request: HttpRequest, template: str, title: Any, **context: Any) -> HttpResponse:
        """Show a page, whose template extends `own.html`, to users who may see the rows."""
        self.require(request)
        shared = {**self.admin_site.each_context(request), "title": title, "opts": self.model._meta}
        return TemplateResponse(request, template, {**shared, "media": self.media, **context})

    def log_decision(self, request: HttpRequest, row: Any, message: str) -> None:
        """Write a decision of the user's about a row into its history."""
        user: Any = request.user  # its primary key may be of any type
        LogEntry.objects.log_actions(
            user_id=user.pk,
            queryset=self.model._default_manager.filter(pk=row.pk),
            action_flag=CHANGE,
            change_message=message,
        )


def column(read: Callable[[Any], Any], words: Any, *, ordering: str | None = None, boolean: bool = False) -> Any:
    """Make a column, or a field of a page, of a `ModelAdmin`: what `read` returns for the row."""
    return admin.display(description=words, ordering=ordering, boolean=boolean)(lambda self, row: read(row))


def time_column(field: str, words: Any = "") -> Any:
    """Make a column with the time in `field`, as all our pages write it."""
    return column(lambda row: utc(getattr(row, field)), in_utc(words or label(field)))


def time_of(field: str) -> Any:
    """Make the same as an entry of `list_display` or `fields`."""
    shown = admin.display(description=in_utc(label(field)))(lambda row: utc(getattr(row, field)))
    shown.__name__ = field
    return shown


def in_utc(words: Any) -> Any:
    return format_lazy(_("{what} (UTC)"), what=words)
