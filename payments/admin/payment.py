"""A payment in the admin: what it stands at, all that happened about it, and what a person may do."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from idempotency.admin.filters import newest
from idempotency.admin.pages import Tool
from idempotency.admin.searching import WholeTermSearch
from idempotency.admin.timeline import utc
from payments.admin import charts, timeline
from payments.admin.facts import with_number
from payments.admin.filters import Opened
from payments.admin.forms import ReasonForm, RefundForm, TellForm, left_minor
from payments.admin.pages import (
    MoneyAdmin,
    Question,
    link_to_ledger,
    link_to_order,
    number_in,
    page_of,
    short,
    shortened,
)
from payments.legible import money, refund_money
from payments.models import Attempt, Payment, Refund
from payments.models.choices import choices
from payments.operations import decisions, telling
from payments.operations.dashboard import HOURS_SHOWN, NEWEST_MAX
from payments.refunds import steps as refunds
from payments.states import PaymentStatus


@admin.register(Payment)
class PaymentAdmin(WholeTermSearch, MoneyAdmin):
    """One payment an order, with everything that providers, the machine and operators did about it."""

    list_display = ("number", "status", "amount", "paid", "refunded", "opened", "short_order")
    list_filter = (Opened, newest("status", choices(PaymentStatus)))
    search_fields = ("id",)
    search_help_text = "A whole number: of payment, order, attempt or refund, or the provider's own of the trade."
    ordering = ("-pk",)
    fieldsets = (
        (None, {"fields": ("full_number", "order", "status", "amount", "paid", "refunded", "on_its_way", "left")}),
        ("History", {"fields": ("history", "requests")}),
        ("Attempts", {"fields": ("attempts",)}),
        ("More", {"fields": ("owner", "opened", "changed", "version"), "classes": ("collapse",)}),
    )

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("dashboard/", view(self.dashboard_view), name="payments_dashboard"),
            path("<uuid:pk>/ask/", view(self.ask_view), name="payments_payment_ask"),
            path("<uuid:pk>/refund/", view(self.refund_view), name="payments_payment_refund"),
            path("<uuid:pk>/tell/<uuid:about>/", view(self.tell_view), name="payments_payment_tell"),
            *super().get_urls(),
        ]

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        return [Tool(address=reverse("admin:payments_dashboard"), words="Dashboard")]

    def tools(self, request: HttpRequest, row: Payment) -> list[Tool]:
        found = []
        if self.may(request, "query_payment") and any(decisions.open_questions(row)):
            address = reverse("admin:payments_payment_ask", args=[row.pk])
            found.append(Tool(address=address, words="Ask the provider now"))
        if self.may(request, "refund_payment") and left_minor(row) > 0:
            found.append(Tool(address=reverse("admin:payments_payment_refund", args=[row.pk]), words="Refund"))
        untold = telling.tellable(row) if self.may(request, "tell_outcome") else []
        for one in untold:
            address = reverse("admin:payments_payment_tell", args=[row.pk, one.pk])
            which = f" of {short(one.pk)}" if len(untold) > 1 else ""
            found.append(Tool(address=address, words=f"Tell the outcome{which}"))
        return found

    def search(self, rows: QuerySet[Payment], term: str) -> QuerySet[Payment]:
        """Each number is looked up in the index that it has; nothing else identifies a payment."""
        payments = set(with_number(term).values_list("attempt__payment_id", flat=True)[:10])
        ours = number_in(term)
        if ours is not None:
            payments |= {ours}
            payments |= set(Attempt.objects.filter(pk=ours).values_list("payment_id", flat=True))
            payments |= set(Refund.objects.filter(pk=ours).values_list("payment_id", flat=True))
        return rows.filter(Q(pk__in=payments) | Q(order_id=ours))

    @admin.display(description="number", ordering="pk")
    def number(self, payment: Payment) -> SafeString:
        return shortened(payment.pk)

    @admin.display(description="number")
    def full_number(self, payment: Payment) -> str:
        return payment.pk.hex

    @admin.display(description="order")
    def order(self, payment: Payment) -> SafeString | str:
        return link_to_order(payment.order_id)

    @admin.display(description="order")
    def short_order(self, payment: Payment) -> SafeString | str:
        return link_to_order(payment.order_id, short(payment.order_id))

    @admin.display(description="amount")
    def amount(self, payment: Payment) -> str:
        return money(payment.amount_minor, payment.currency)

    @admin.display(description="paid")
    def paid(self, payment: Payment) -> str:
        return money(payment.paid_minor, payment.currency)

    @admin.display(description="refunded")
    def refunded(self, payment: Payment) -> str:
        return money(payment.refunded_minor, payment.currency)

    @admin.display(description="on its way back")
    def on_its_way(self, payment: Payment) -> str:
        return money(payment.reserved_minor, payment.currency)

    @admin.display(description="left to refund")
    def left(self, payment: Payment) -> str:
        return money(left_minor(payment), payment.currency)

    @admin.display(description="opened (UTC)", ordering="pk")
    def opened(self, payment: Payment) -> str:
        return utc(payment.created_at)

    @admin.display(description="changed (UTC)")
    def changed(self, payment: Payment) -> str:
        return utc(payment.updated_at)

    @admin.display(description="keyed requests")
    def requests(self, payment: Payment) -> SafeString:
        return format_html(
            "{} · {}", link_to_ledger("payment", payment.pk), link_to_ledger("order", payment.order_id)
        )

    @admin.display(description="attempts")
    def attempts(self, payment: Payment) -> str:
        rows = payment.attempts.order_by("id")[: timeline.MOST]
        lines = [(row, page_of(row), money(row.amount_minor, row.currency), utc(row.expires_at)) for row in rows]
        return render_to_string("admin/payments/payment/attempts.html", {"lines": lines})

    @admin.display(description="history")
    def history(self, payment: Payment) -> str:
        story = timeline.read(payment)
        moments = [(utc(moment.at), moment) for moment in timeline.tell(story, currency=payment.currency)]
        context = {"moments": moments, "is_cut": story.is_cut, "most": timeline.MOST}
        return render_to_string("admin/payments/payment/timeline.html", context)

    def dashboard_view(self, request: HttpRequest) -> HttpResponse:
        """The last hours and what is open now."""
        context = {"hours": HOURS_SHOWN, "newest": f"{NEWEST_MAX:,}"}
        if self.has_view_permission(request):
            context |= charts.dashboard()
        return self.own_page(request, "admin/payments/payment/dashboard.html", "Payments", **context)

    def ask_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Ask the providers about what is open."""
        self.require(request, "query_payment")
        payment = get_object_or_404(Payment, pk=pk)
        attempts, waiting = decisions.open_questions(payment)
        asked = [f"{row.channel} is asked what became of attempt {row.out_trade_no}." for row in attempts]
        asked += [_what_asking_does(refund) for refund in waiting]
        sentences = [
            *(asked or ["Nothing of this payment is open, so there is nothing to ask about."]),
            "What is told counts as if the provider had notified us: an attempt that was paid pays the order, or"
            " is given back where the order does not take it. No new trade or refund is begun.",
        ]
        question = Question(
            title="Ask the provider now",
            sentences=sentences,
            button="Ask now",
            form=ReasonForm(request.POST or None),
            act=lambda given, by: decisions.ask(payment, by=by),
        )
        return self.ask_first(request, payment, question)

    def tell_view(self, request: HttpRequest, pk: UUID, about: UUID) -> HttpResponse:
        """Tell what became of an attempt or refund whose provider cannot tell us."""
        self.require(request, "tell_outcome")
        payment = get_object_or_404(Payment, pk=pk)
        row = payment.attempts.filter(pk=about).first() or payment.refunds.filter(pk=about).first()
        if row is None:
            raise Http404
        try:
            why = telling.why_untold(row)
        except decisions.NotDecidable as refused:
            messages.error(request, str(refused))
            return HttpResponseRedirect(page_of(payment))
        question = Question(
            title="Tell the outcome",
            sentences=[*_what_telling_does(row, why), *filter(None, [telling.why_not_ended(row)])],
            button="Tell it",
            form=TellForm(request.POST or None, row=row),
            act=lambda given, by: telling.tell(row, moved=given["moved"], number=given["number"], by=by),
        )
        return self.ask_first(request, payment, question)

    def refund_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Give money back, once for each form."""
        self.require(request, "refund_payment")
        payment = get_object_or_404(Payment, pk=pk)
        left = left_minor(payment)
        question = Question(
            title="Refund",
            sentences=[
                f"{money(payment.paid_minor, payment.currency)} was paid; {money(left, payment.currency)} of it is"
                " neither refunded nor on its way back.",
                "The amount is reserved at once, then the provider is asked to give it back to the payer. That"
                " cannot be undone. Sending this form twice refunds once.",
                "If everything goes back, the order counts as refunded.",
            ],
            button="Give the money back",
            form=RefundForm(request.POST or None, payment=payment),
            act=lambda given, by: decisions.refund(
                payment, refund_id=given["number"], amount_minor=given["amount"], told=given["told"], by=by
            ),
        )
        return self.ask_first(request, payment, question)


def _what_asking_does(refund: Refund) -> str:
    about = f"refund {refund.out_refund_no} of {refund_money(refund)}"
    if refund.submitted_at is None:
        return f"{refund.attempt.channel} has not heard of {about} yet: it is told now, under that number."
    return f"{refund.attempt.channel} is asked what became of {about}; if it never heard of it, it is told now."


def _what_telling_does(row: Attempt | Refund, why: str) -> list[str]:
    attempt = telling.attempt_of(row)
    about = f"This is {telling.named(row)}. {attempt.channel} cannot tell us what became of it: {why}."
    where = f"Look it up in its own pages first, those of merchant {attempt.merchant}."
    once = (
        "This cannot be undone. What the provider tells of it later, by whatever number, is the same money and"
        " counts once."
    )
    if isinstance(row, Attempt):
        return [
            about,
            f"{where} {money(row.amount_minor, row.currency)} was asked for; another amount cannot be told here.",
            "What you tell counts as if the provider had told it. Paid, it pays the order, or is given back where"
            " the order does not take it. Never paid, it is closed, and with it an order whose time is over.",
            once,
        ]
    return [
        about,
        f"{where} The number of its payment is {refunds.charge_of(row).provider_txn_id}.",
        "If the money went back, it counts as refunded. If it did not move, the refund has failed, what is"
        " reserved for it is free again, and an anomaly is filed.",
        once,
    ]
