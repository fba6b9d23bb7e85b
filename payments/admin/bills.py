"""Daily bills in the admin: comparisons, and lines on which a provider and we disagree."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from itertools import chain
from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import newest
from idempotency.admin.labels import label
from idempotency.admin.pages import Tool, column, time_column
from idempotency.admin.searching import LOOKED_AT, numbers_among_newest
from payments.admin.badges import badge
from payments.admin.find import numbers_in
from payments.admin.money_filters import AtChannel, ToDo
from payments.admin.pages import MoneyAdmin, ResolvableAdmin, advice, link, money_column, resolving, section
from payments.channels.accounts import account_name, of_merchant
from payments.display import money
from payments.models import BillComparison, Difference
from payments.reconciliation import spreadsheet

Kind = Difference.Kind
BOM = "\ufeff"  # begins a CSV: without it a spreadsheet takes UTF-8 for the encoding of its country

WHAT_TO_DO: Mapping[str, Any] = {
    Kind.MISSING_HERE: _(
        "The provider counts it, and its number is not ours or conflicts with what we know. Find out whose trade"
        " it is on the provider's own pages."
    ),
    Kind.MISSING_THERE: _(
        "We know of it, and the provider does not count it on that day. See whether it is on the bill of the day"
        " before or after; compare that day again."
    ),
    Kind.AMOUNT: _(
        "Both know of it, in other amounts. Compare with the provider's own pages, then settle by hand."
    ),
}


def _account(row: BillComparison) -> str:
    return account_name(of_merchant(row.channel, row.merchant))


@admin.register(BillComparison)
class BillComparisonAdmin(MoneyAdmin):
    """Day of one merchant account."""

    appears = _("A comparison appears once a day for each merchant account, when the provider's bill is out.")
    list_display = ("day", "merchant_account", "merchant", "lines", "theirs", "ours", "open_lines", "compared")
    list_filter = (AtChannel,)
    search_help_text = _("A day (2026-11-23), a month (2026-11) or a whole merchant number.")
    fields = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[BillComparison]:
        """Count the open differences of all rows of a page in its one statement."""
        still_open = Difference.objects.filter(comparison=OuterRef("pk"), resolved_at__isnull=True).order_by()
        counted = still_open.values("comparison").annotate(count=Count("pk")).values("count")
        rows: QuerySet[BillComparison] = super().get_queryset(request)
        return rows.annotate(still_open=Subquery(counted))

    def search(self, rows: QuerySet[BillComparison], term: str) -> QuerySet[BillComparison]:
        return rows.filter(pk__in=numbers_among_newest(rows, Q(merchant=term) | _on_days(term)))

    def tools(self, request: HttpRequest, row: BillComparison) -> list[Tool]:
        address = f"{reverse('admin:payments_difference_csv')}?comparison={row.pk}"
        return [Tool(address=address, words=_("Differences as CSV"))]

    merchant_account = column(_account, _("merchant account"))
    theirs = money_column("theirs_minor", _("theirs"))
    ours = money_column("ours_minor", _("ours"))
    compared = time_column("compared_at")

    @admin.display(description=_("open differences"))
    def open_lines(self, row: Any) -> SafeString:
        if not row.still_open:
            return badge("agrees")
        address = f"{reverse('admin:payments_difference_changelist')}?comparison={row.pk}"
        words = gettext("%(count)s open") % {"count": row.still_open}
        return format_html('<a href="{}">{}</a>', address, badge("open", words))


def _on_days(term: str) -> Q:
    """Select that day or month; no row for any other term."""
    with suppress(ValueError):
        return Q(day=date.fromisoformat(term))
    with suppress(ValueError):
        first = date.fromisoformat(f"{term}-01")
        return Q(day__year=first.year, day__month=first.month)
    return Q(pk__in=[])


def _resolved(row: Difference) -> list[str]:
    about = {"what": capfirst(row.get_kind_display()), "number": row.provider_txn_id, "bill": _named(row)}
    return [
        gettext("%(what)s: %(number)s of %(bill)s.") % about,
        advice(row, WHAT_TO_DO),
        gettext("Resolving moves no money. It takes the line off the list of open work, for good."),
    ]


@admin.register(Difference)
class DifferenceAdmin(ResolvableAdmin):
    """A line on which bill and facts disagree; open ones first, oldest first."""

    appears = _("A difference appears when a daily bill and our facts disagree.")
    list_display = ("line", "kind", "moved", "theirs", "ours", "payment_link", "comparison_link", "settled")
    list_filter = (
        ToDo,
        newest("kind", Kind.choices),
        newest("moved", [(word, _(word)) for word in ("paid", "refunded", "taken", "returned")]),
    )
    list_select_related = ("comparison",)
    linked = ("comparison",)  # from a comparison's page to its lines
    acts = {"resolve": resolving("resolve_difference", _resolved)}
    views = [("csv/", "csv_view", "payments_difference_csv")]
    search_help_text = format_lazy(
        _("A whole number, of the newest {newest:,} lines: the provider's, or ours of the trade or refund."),
        newest=LOOKED_AT,
    )
    fieldsets = (
        section(None, "kind", "what_to_do", "theirs", "ours", "payment_link"),
        section(_("The line"), "comparison_link", "moved", "provider_txn_id", "out_trade_no", "out_refund_no"),
        section(_("Resolution"), "in_the_end", "settled"),
    )

    def search(self, rows: QuerySet[Difference], term: str) -> QuerySet[Difference]:
        ours = [term, *(number.hex for number in numbers_in(term))]
        wanted = Q(provider_txn_id__in=ours) | Q(out_trade_no__in=ours) | Q(out_refund_no__in=ours)
        return rows.filter(pk__in=numbers_among_newest(rows, wanted))

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        return [Tool(address=reverse("admin:payments_difference_csv"), words=_("Open differences as CSV"))]

    what_to_do = column(lambda row: advice(row, WHAT_TO_DO), _("what to do"))
    line = column(lambda row: row.provider_txn_id, _("line"))
    theirs = column(lambda row: _amount(row.theirs_minor, row.currency), _("theirs"))
    ours = column(lambda row: _amount(row.ours_minor, row.currency), _("ours"))
    comparison_link = column(lambda row: link(row.comparison, _named(row)), _("bill"))

    def csv_view(self, request: HttpRequest) -> StreamingHttpResponse:
        """Export all lines of one comparison, or all open ones, for a spreadsheet."""
        self.require(request)
        rows = self._exported(request).iterator(chunk_size=1000)
        lines = spreadsheet.export(rows, headings=map(label, spreadsheet.COLUMNS), every_digit=True)
        response = StreamingHttpResponse(chain([BOM], lines), content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="differences.csv"'
        return response

    def _exported(self, request: HttpRequest) -> QuerySet[Difference]:
        rows = Difference.objects.select_related("comparison").order_by("id")
        number = request.GET.get("comparison", "")
        if number.isascii() and number.isdigit() and len(number) < 19:
            return rows.filter(comparison_id=int(number))
        return rows.filter(resolved_at__isnull=True)


def _named(row: Difference) -> str:
    return f"{_account(row.comparison)} {row.comparison}"


def _amount(amount_minor: int | None, currency: str) -> str:
    return "-" if amount_minor is None else money(amount_minor, currency)
