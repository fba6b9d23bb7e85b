"""A payment in the admin: its totals, its history, and the acts of an operator."""

from typing import Any
from urllib.parse import quote
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet, prefetch_related_objects
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from idempotency.admin.filters import Opened, newest
from idempotency.admin.labels import utc
from idempotency.admin.pages import Tool, column, time_column
from idempotency.admin.searching import LOOKED_AT
from idempotency.models import LedgerEntry
from payments.admin import find
from payments.admin.badges import badge
from payments.admin.case import page as case_file
from payments.admin.case.records import MOST
from payments.admin.forms import OutcomeForm, RefundForm
from payments.admin.pages import (
    Act,
    MoneyAdmin,
    link,
    link_to_order,
    money_column,
    page_of,
    section,
    short,
    shortened,
)
from payments.channels.accounts import account_name, method_name
from payments.display import money
from payments.models import Attempt, Payment, Refund
from payments.models.choices import choices
from payments.operations import actions, manual
from payments.refunds import steps as refunds
from payments.states import PaymentStatus


def _what_asking_does(payment: Payment) -> list[str]:
    attempts, waiting = actions.open_questions(payment)
    asked = [
        _("%(account)s is asked about attempt %(number)s.")
        % {"account": account_name(row.account), "number": row.out_trade_no}
        for row in attempts
    ]
    asked += [_what_asking_does_about(refund) for refund in waiting]
    return [
        *(asked or [_("Nothing of this payment is open, so there is nothing to ask about.")]),
        _(
            "An answer counts like a notification: an attempt that was paid pays the order, or is refunded"
            " where the order does not take it. No new trade or refund is begun."
        ),
    ]


def _what_asking_does_about(refund: Refund) -> str:
    about = {"account": account_name(refund.attempt.account), "refund": actions.named(refund)}
    if refund.submitted_at is None:
        return _("%(account)s does not know %(refund)s yet: it is sent now, under that number.") % about
    return _("%(account)s is asked about %(refund)s; if it does not know it, it is sent now.") % about


def _what_refunding_does(payment: Payment) -> list[str]:
    about = {"paid": money(payment.paid_minor, payment.currency)}
    about["left"] = money(payment.refundable_minor, payment.currency)
    return [
        _("%(paid)s was paid; %(left)s of it can still be refunded.") % about,
        _(
            "The amount is reserved at once, then the provider is asked to give it back to the payer. That"
            " cannot be undone. Sending this form twice refunds once."
        ),
        _("If everything goes back, the order counts as refunded."),
    ]


def _refunded(payment: Payment, form: dict[str, Any], by: actions.Operator) -> actions.Result:
    """Refund money, once for each form."""
    number, amount_minor, reason = form["number"], form["amount"], form["shown_reason"]
    return actions.refund(payment, refund_id=number, amount_minor=amount_minor, shown_reason=reason, by=by)


def _what_recording_does(row: Attempt | Refund) -> list[str]:
    """Refuse, by NotDecidable, where its provider can answer."""
    why, attempt = manual.why_manual(row), manual.attempt_of(row)
    account, too_early = account_name(attempt.account), filter(None, [manual.why_not_ended(row)])
    about = {"row": actions.named(row), "account": account, "why": why, "merchant": attempt.merchant}
    first = _("This is %(row)s. %(account)s cannot answer for it: %(why)s.") % about
    where = _("Look it up in its own pages first, those of merchant %(merchant)s.") % about
    once = _(
        "This cannot be undone. If the provider reports it later, by whatever number, it is the same money and"
        " counts once."
    )
    if isinstance(row, Attempt):
        asked_for = {"money": money(row.amount_minor, row.currency)}
        amount = _("%(money)s was asked for; no other amount can be recorded.") % asked_for
        then = _(
            "What you record counts like the provider's answer. Paid, it pays the order, or is refunded where the"
            " order does not take it. Never paid, it is closed, and with it an order whose time is over."
        )
        return [first, f"{where} {amount}", then, once, *too_early]
    charged = _("The number of its payment is %(number)s.") % {"number": refunds.charge_of(row).provider_txn_id}
    then = _(
        "If the money went back, it counts as refunded. If it did not move, the refund has failed, what is"
        " reserved for it is free again, and an anomaly is filed."
    )
    return [first, f"{where} {charged}", then, once, *too_early]


RECORD = Act(
    permission="tell_outcome",
    title=gettext_lazy("Record the outcome"),
    button=gettext_lazy("Record it"),
    sentences=_what_recording_does,
    carry_out=lambda row, form, by: manual.record(row, moved=form["moved"], number=form["number"], by=by),
    form=lambda row, given: OutcomeForm(given, row=row),
)


@admin.register(Payment)
class PaymentAdmin(MoneyAdmin):
    """Payment of an order, with all that providers, the system and operators did about it."""

    appears = gettext_lazy("A payment appears when an order is first sent to a provider.")
    list_display = ("number", "state", "amount", "credited", "refunded_of_it", "opened", "short_order")
    list_filter = (Opened, newest("status", choices(PaymentStatus)))
    search_help_text = format_lazy(
        gettext_lazy(
            "A whole number: of payment, order, attempt or refund, or the provider's own; a user name. Of the"
            " newest {newest:,} also an order's short number, an amount (39.80) or an e-mail address."
        ),
        newest=LOOKED_AT,
    )
    acts = {
        "ask": Act(
            permission="query_payment",
            title=gettext_lazy("Ask the provider now"),
            button=gettext_lazy("Ask now"),
            sentences=_what_asking_does,
            carry_out=lambda payment, form, by: actions.ask(payment, by=by),
            is_open=lambda payment: any(actions.open_questions(payment)),
        ),
        "refund": Act(
            permission="refund_payment",
            title=gettext_lazy("Refund"),
            button=gettext_lazy("Give the money back"),
            sentences=_what_refunding_does,
            carry_out=_refunded,
            is_open=lambda payment: payment.refundable_minor > 0,
            form=lambda payment, given: RefundForm(given, payment=payment),
        ),
    }
    views = [
        ("find/", "find_view", "payments_find"),
        ("<uuid:pk>/case.json", "export_view", "payments_payment_export"),
        ("<uuid:pk>/tell/<uuid:about>/", "record_view", "payments_payment_tell"),
    ]
    fieldsets = (
        section(None, "case"),
        section(gettext_lazy("History"), "history", "requests"),
        section(gettext_lazy("Attempts"), "attempts"),
        section(
            gettext_lazy("More"),
            *("full_number", "order", "amount", "credited", "refunded_of_it", "on_its_way", "left"),
            *("owner", "opened", "changed", "version"),
            classes=("collapse",),
        ),
    )

    def tools(self, request: HttpRequest, row: Payment) -> list[Tool]:
        found = super().tools(request, row)
        by_hand = [] if self.lacks(request, RECORD.permission) else manual.recordable(row)
        for one in by_hand:
            address = reverse("admin:payments_payment_tell", args=[row.pk, one.pk])
            several = len(by_hand) > 1
            words = _("Record the outcome of %s") % short(one.pk) if several else _("Record the outcome")
            found.append(Tool(address=address, words=words))
        export = reverse("admin:payments_payment_export", args=[row.pk])
        return [*found, Tool(address=export, words=_("Export for support"))]

    def search(self, rows: QuerySet[Payment], term: str) -> QuerySet[Payment]:
        """Look each number up in its own index; what else describes a payment, among the newest."""
        payments = set(find.with_number(term).values_list("attempt__payment_id", flat=True)[:10])
        payments |= find.of_order(rows, term)
        ours = find.numbers_in(term)
        payments |= ours
        payments |= set(Attempt.objects.filter(pk__in=ours).values_list("payment_id", flat=True))
        payments |= set(Refund.objects.filter(pk__in=ours).values_list("payment_id", flat=True))
        return rows.filter(pk__in=payments | find.described(rows, term))

    number = column(lambda payment: shortened(payment.pk), gettext_lazy("number"))
    full_number = column(lambda payment: payment.pk.hex, gettext_lazy("number"))
    order = column(lambda payment: link_to_order(payment.order_no, is_whole=True), gettext_lazy("order"))
    short_order = column(lambda payment: link_to_order(payment.order_no), gettext_lazy("order"))
    # money that was not credited, of a second payment, is in the sums of the payment's page alone
    credited = money_column("paid_minor", pgettext_lazy("money", "credited"))
    refunded_of_it = money_column("refunded_minor", gettext_lazy("refunded of it"))
    on_its_way = money_column("reserved_minor", gettext_lazy("on its way back"))
    left = money_column("refundable_minor", gettext_lazy("left to refund"))
    opened = time_column("created_at", gettext_lazy("opened at"))
    changed = time_column("updated_at", gettext_lazy("changed at"))

    @admin.display(description=gettext_lazy("case"))
    def case(self, payment: Payment) -> str:
        return render_to_string("admin/payments/payment/case.html", case_file.head(payment))

    @admin.display(description=gettext_lazy("keyed requests"))
    def requests(self, payment: Payment) -> SafeString:
        found = reverse("admin:idempotency_ledgerentry_changelist")
        about = [
            (f"{found}?q=payment:{payment.pk.hex}", _("requests about the payment")),
            (f"{found}?q=order:{quote(payment.order_no)}", _("requests about the order")),
        ]
        return format_html_join(" · ", '<a href="{}">{}</a>', about)

    @admin.display(description=gettext_lazy("Attempts"))
    def attempts(self, payment: Payment) -> str:
        rows = payment.attempts.order_by("id")[:MOST]
        lines = [
            (
                link(row, row.out_trade_no),
                method_name(row),
                badge(row.status),
                money(row.amount_minor, row.currency),
                utc(row.expires_at),
            )
            for row in rows
        ]
        return render_to_string("admin/payments/payment/attempts.html", {"lines": lines})

    @admin.display(description=gettext_lazy("history"))
    def history(self, payment: Payment) -> str:
        return render_to_string("admin/payments/payment/timeline.html", case_file.timeline(payment))

    def find_view(self, request: HttpRequest) -> HttpResponse:
        """Search for anything; lead to the one thing that is found."""
        term = request.GET.get("q", "").replace("\0", "").strip()[:256]
        found = find.find(self.admin_site, request, term) if term and self.has_view_permission(request) else []
        if len(found) == 1:
            if isinstance(found[0], LedgerEntry):
                messages.info(request, find.use_of(found[0]))
            return HttpResponseRedirect(page_of(found[0]))
        prefetch_related_objects([row for row in found if isinstance(row, Payment)], "owner")
        context = {"term": term, "rows": [_found(row) for row in found]}
        return self.own_page(request, "admin/payments/find.html", _("Search"), **context)

    def export_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Export what the page shows, and no more, as JSON."""
        self.require(request)
        payment = get_object_or_404(Payment, pk=pk)
        return JsonResponse(
            case_file.export(payment),
            json_dumps_params={"ensure_ascii": False, "indent": 2},
            headers={"Content-Disposition": f'attachment; filename="payment-{payment.pk.hex}.json"'},
        )

    def record_view(self, request: HttpRequest, pk: UUID, about: UUID) -> HttpResponse:
        """Record the outcome of an attempt or refund whose provider cannot answer."""
        self.require(request, RECORD.permission)
        payment = get_object_or_404(Payment, pk=pk)
        row = payment.attempts.filter(pk=about).first() or payment.refunds.filter(pk=about).first()
        if row is None:
            raise Http404
        return self.ask_first(request, payment, RECORD, about=row)


def _found(row: Any) -> dict[str, Any]:
    shown = {"what": row._meta.verbose_name, "link": link(row, str(row))}
    if isinstance(row, Payment):
        shown |= {"state": badge(row.status), "amount": money(row.amount_minor, row.currency)}
        shown |= {"order": link_to_order(row.order_no), "opened": utc(row.created_at)}
        shown |= {"customer": row.owner or "-", "link": link(row, short(row.pk))}
    return shown
