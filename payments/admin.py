"""Payments in Django admin: what happened and why, for people who review money. Nothing can be changed here."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from idempotency.admin import ReadOnlyAdmin
from payments.models import Anomaly, Attempt, Notification, Observation, Payment, Refund

TIME = "%Y-%m-%d %H:%M:%S"


def _line_of_fact(fact: Observation) -> str:
    told = f"{fact.observed_at:{TIME}}  {fact.channel}  {fact.kind}  {fact.amount_minor} {fact.currency}"
    doubt = "" if fact.credited or not fact.amount_minor else "  NOT CREDITED"
    return f"{told}  {fact.provider_txn_id}  by {fact.source}{doubt}"


class ReadOnlyInline(admin.TabularInline):  # type: ignore[type-arg]
    """Rows of a payment, to look at."""

    extra = 0
    can_delete = False
    show_change_link = True

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields or ()

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class AttemptInline(ReadOnlyInline):
    model = Attempt
    fields = ("channel", "id", "status", "amount_minor", "submitted_at", "expires_at", "query_count", "message")


class RefundInline(ReadOnlyInline):
    model = Refund
    fields = ("id", "amount_minor", "status", "reason", "anomaly", "created_at")


class AnomalyInline(ReadOnlyInline):
    model = Anomaly
    fields = ("kind", "channel", "reference", "created_at", "resolved_at", "resolution")


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    """One payment an order, with everything that providers said about it."""

    list_display = ("id", "order_id", "status", "amount", "paid_minor", "refunded_minor", "created_at")
    list_filter = ("status", "currency", "created_at")
    search_fields = ("id__exact", "order_id__exact", "attempts__id__exact")
    inlines = (AttemptInline, RefundInline, AnomalyInline)
    show_full_result_count = False
    list_per_page = 50
    readonly_fields = ("observations", "notifications")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Payment], search_term: str
    ) -> tuple[QuerySet[Payment], bool]:
        """By any of our 32-character numbers, with or without dashes; nothing else identifies a payment."""
        term = search_term.strip().replace("-", "").lower()
        if not term:
            return queryset, False
        if len(term) != 32 or not all(character in "0123456789abcdef" for character in term):
            return queryset.none(), False
        return queryset.filter(Q(pk=term) | Q(order_id=term) | Q(attempts__pk=term)).distinct(), False

    @admin.display(description="amount", ordering="amount_minor")
    def amount(self, payment: Payment) -> str:
        return f"{payment.amount_minor} {payment.currency}"

    @admin.display(description="facts, in the order they were told")
    def observations(self, payment: Payment) -> SafeString:
        facts = Observation.objects.filter(attempt__payment=payment).order_by("id")
        lines = [_line_of_fact(fact) for fact in facts]
        return format_html("<pre>{}</pre>", "\n".join(lines) or "none yet")

    @admin.display(description="notifications")
    def notifications(self, payment: Payment) -> SafeString:
        numbers = [attempt.out_trade_no for attempt in payment.attempts.all()]
        rows = Notification.objects.filter(out_trade_no__in=numbers).order_by("id")
        lines = [f"{row.received_at:{TIME}}  {row.channel}  {row.event_type}  {row.verdict}" for row in rows]
        return format_html("<pre>{}</pre>", "\n".join(lines) or "none yet")


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    """The raw word of the providers."""

    list_display = ("notification_id", "channel", "event_type", "verdict", "out_trade_no", "received_at")
    list_filter = ("channel", "verdict", "event_type", "received_at")
    search_fields = ("notification_id", "out_trade_no")
    show_full_result_count = False
    exclude = ("body",)
    readonly_fields = ("body_text",)

    @admin.display(description="body as received")
    def body_text(self, row: Notification) -> SafeString:
        text = bytes(row.body).decode("utf-8", "replace")
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            text = text.replace("&", "\n&")
        return format_html("<pre>{}</pre>", text)


@admin.register(Anomaly)
class AnomalyAdmin(ReadOnlyAdmin):
    """What a person should look at."""

    list_display = ("kind", "channel", "reference", "created_at", "resolved_at", "resolution")
    list_filter = (("resolved_at", admin.EmptyFieldListFilter), "kind", "channel")
    search_fields = ("reference",)
    show_full_result_count = False


@admin.register(Refund)
class RefundAdmin(ReadOnlyAdmin):
    """Money on its way back."""

    list_display = ("id", "payment", "amount_minor", "status", "reason", "created_at")
    list_filter = ("status", "created_at")
    list_select_related = ("payment",)
    show_full_result_count = False


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    """One trade at one provider."""

    list_display = ("id", "channel", "status", "amount_minor", "created_at", "query_count")
    list_filter = ("channel", "status")
    show_full_result_count = False
