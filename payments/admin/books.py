"""The money journal in the admin: entries, lines by account, the trial balance."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import newest
from idempotency.admin.labels import label, utc
from idempotency.admin.pages import Tool, column, in_utc, time_column
from payments.admin.badges import book_name
from payments.admin.find import numbers_in
from payments.admin.money_filters import Account, Booked
from payments.admin.pages import MoneyAdmin, link, link_to_payment
from payments.display import amounts, money
from payments.models import Attempt, JournalEntry, JournalLine
from payments.operations import figures

NONE = "–"  # of a sum that there is not


@admin.register(JournalEntry)
class JournalEntryAdmin(MoneyAdmin):
    """Movement of money; its lines add up to zero."""

    appears = _("An entry appears when a provider reports that money moved.")
    list_display = ("number", "moved", "amount", "fact", "payment_link", "booked")
    list_filter = (Booked, newest("kind", JournalEntry.Kind.choices), Account)
    list_select_related = ("observation__attempt",)
    search_help_text = _(
        "An account (orders, held, provider:CHANNEL:MERCHANT), or the number of a payment or attempt."
    )
    fields = ("number", "moved", "fact", "payment_link", "booked", "lines")
    views = [("trial-balance/", "trial_balance_view", "payments_trial_balance")]

    def get_queryset(self, request: HttpRequest) -> QuerySet[JournalEntry]:
        return super().get_queryset(request).prefetch_related("lines")

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        return [Tool(address=reverse("admin:payments_trial_balance"), words=_("Trial balance"))]

    def search(self, rows: QuerySet[JournalEntry], term: str) -> QuerySet[JournalEntry]:
        ours = numbers_in(term)
        if not ours:
            return rows.filter(pk__in=JournalLine.objects.filter(account=term).values("entry_id"))
        of_ours = Q(pk__in=ours) | Q(payment_id__in=ours)
        attempts = list(Attempt.objects.filter(of_ours).values_list("pk", flat=True)[:100])
        return rows.filter(observation__attempt__in=attempts)

    number = column(lambda entry: str(entry.pk), _("number"))
    fact = column(lambda entry: link(entry.observation), _("fact"))
    payment_link = column(lambda entry: link_to_payment(entry.observation.attempt.payment_id), _("payment"))
    booked = time_column("created_at", _("booked at"))

    @admin.display(description=label("kind"))
    def moved(self, entry: JournalEntry) -> str:
        is_counted = entry.kind == JournalEntry.Kind.COUNTED
        return entry.get_kind_display() if is_counted else entry.observation.get_kind_display()

    @admin.display(description=_("amount"))
    def amount(self, entry: JournalEntry) -> str:
        return ", ".join(
            money(line.amount_minor, line.currency) for line in entry.lines.all() if line.amount_minor > 0
        )

    @admin.display(description=_("entry lines"))
    def lines(self, entry: JournalEntry) -> str:
        rows = [
            (line, book_name(line.account), *_sides(line))
            for line in sorted(entry.lines.all(), key=lambda line: -line.amount_minor)
        ]
        return render_to_string("admin/payments/journalentry/lines.html", {"rows": rows})

    def trial_balance_view(self, request: HttpRequest) -> HttpResponse:
        """Show every account once a currency, and the sum of all, which is zero."""
        self.require(request)
        accounts = figures.trial_balance()
        context = {
            "at": utc(timezone.now()),
            "rows": [_in_words(account) for account in accounts],
            "totals": [_in_words(total) for total in figures.totals(accounts)],
        }
        return self.own_page(
            request, "admin/payments/journalentry/trial_balance.html", _("Trial balance"), **context
        )


@admin.register(JournalLine)
class JournalLineAdmin(MoneyAdmin):
    """The sheet of an account: search for its name."""

    appears = _("Lines appear with each entry of the journal.")
    list_display = ("number", "book", "debit", "credit", "entry_link", "booked")
    list_filter = (Booked, Account)
    list_select_related = ("entry",)
    search_help_text = _("An account: orders, held, or provider:CHANNEL:MERCHANT.")
    fields = ("number", "book", "debit", "credit", "currency", "entry_link", "booked")

    def search(self, rows: QuerySet[JournalLine], term: str) -> QuerySet[JournalLine]:
        return rows.filter(account=term)

    number = column(lambda line: str(line.pk), _("number"))
    debit = column(lambda line: _sides(line)[0] or NONE, _("debit"))
    credit = column(lambda line: _sides(line)[1] or NONE, _("credit"))
    entry_link = column(lambda line: link(line.entry, str(line.entry_id)), _("entry"))
    booked = column(lambda line: utc(line.entry.created_at), in_utc(_("booked at")))

    @admin.display(description=label("account"))
    def book(self, line: JournalLine) -> SafeString:
        return format_html('<span title="{}">{}</span>', line.account, book_name(line.account))


def _in_words(row: figures.Account) -> dict[str, Any]:
    return {
        "account": row.account,
        "name": book_name(row.account),
        "currency": row.currency,
        **amounts(row, "debit", "credit", "balance"),
        "is_zero": row.balance_minor == 0,
    }


def _sides(line: JournalLine) -> tuple[str, str]:
    """Return debit and credit, one of them empty."""
    amount = money(abs(line.amount_minor), line.currency)
    return (amount, "") if line.amount_minor > 0 else ("", amount)
