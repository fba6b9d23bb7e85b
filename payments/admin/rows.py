"""Pages of the other rows: attempts, refunds and events."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.utils.safestring import SafeString

from idempotency.admin.filters import newest
from idempotency.admin.searching import WholeTermSearch
from idempotency.admin.timeline import utc
from payments.admin.filters import CHANNELS, Opened, Waiting
from payments.admin.pages import MoneyAdmin, link, link_to_payment, number_in, shortened
from payments.legible import money, refund_money
from payments.models import Attempt, PaymentEvent, Refund
from payments.models.choices import choices
from payments.states import AttemptStatus, RefundStatus


@admin.register(Attempt)
class AttemptAdmin(WholeTermSearch, MoneyAdmin):
    """One trade at one provider. What is known of the shopper, and by what he pays, is not shown."""

    list_display = ("number", "channel", "method", "status", "amount", "payment_link", "opened", "questions")
    list_filter = (Opened, newest("status", choices(AttemptStatus)), newest("channel", CHANNELS))
    search_fields = ("id",)
    search_help_text = "Our number of the trade, or of the payment."
    ordering = ("-pk",)
    fields = (
        *("out_trade_no", "payment_link", "channel", "method", "merchant", "status", "message", "amount"),
        *("description", "reference", "opened", "submitted", "expires", "next_question", "query_count"),
    )

    def search(self, rows: QuerySet[Attempt], term: str) -> QuerySet[Attempt]:
        ours = number_in(term)
        return rows.filter(Q(pk=ours) | Q(payment_id=ours))

    @admin.display(description="our number")
    def number(self, attempt: Attempt) -> SafeString:
        return shortened(attempt.pk)

    @admin.display(description="our number")
    def out_trade_no(self, attempt: Attempt) -> str:
        return attempt.out_trade_no

    @admin.display(description="payment")
    def payment_link(self, attempt: Attempt) -> SafeString | str:
        return link_to_payment(attempt.payment_id)

    @admin.display(description="amount")
    def amount(self, attempt: Attempt) -> str:
        return money(attempt.amount_minor, attempt.currency)

    @admin.display(description="opened (UTC)", ordering="pk")
    def opened(self, attempt: Attempt) -> str:
        return utc(attempt.created_at)

    @admin.display(description="submitted (UTC)")
    def submitted(self, attempt: Attempt) -> str:
        return utc(attempt.submitted_at)

    @admin.display(description="expires (UTC)")
    def expires(self, attempt: Attempt) -> str:
        return utc(attempt.expires_at)

    @admin.display(description="asked")
    def questions(self, attempt: Attempt) -> int:
        return attempt.query_count

    @admin.display(description="next question (UTC)")
    def next_question(self, attempt: Attempt) -> str:
        return utc(attempt.next_query_at)


@admin.register(Refund)
class RefundAdmin(WholeTermSearch, MoneyAdmin):
    """Money on its way back."""

    list_display = ("number", "status", "amount", "reason", "payment_link", "asked_for")
    list_filter = (newest("status", choices(RefundStatus), by="created_at"),)
    list_select_related = ("payment", "anomaly")
    search_fields = ("id",)
    search_help_text = "Our number of the refund, or of the payment."
    ordering = ("-created_at", "-pk")  # a policy refund's number follows from its anomaly's, not from the time
    fields = (
        *(
            "out_refund_no",
            "payment_link",
            "attempt_link",
            "anomaly_link",
            "amount",
            "status",
            "message",
            "reason",
        ),
        *("asked_for", "sent", "next_question", "query_count"),
    )

    def search(self, rows: QuerySet[Refund], term: str) -> QuerySet[Refund]:
        ours = number_in(term)
        return rows.filter(Q(pk=ours) | Q(payment_id=ours))

    @admin.display(description="our number")
    def number(self, refund: Refund) -> SafeString:
        return shortened(refund.pk)

    @admin.display(description="our number")
    def out_refund_no(self, refund: Refund) -> str:
        return refund.out_refund_no

    @admin.display(description="payment")
    def payment_link(self, refund: Refund) -> SafeString | str:
        return link_to_payment(refund.payment_id)

    @admin.display(description="attempt")
    def attempt_link(self, refund: Refund) -> SafeString | str:
        return link(refund.attempt)

    @admin.display(description="anomaly")
    def anomaly_link(self, refund: Refund) -> SafeString | str:
        return link(refund.anomaly, refund.anomaly.get_kind_display() if refund.anomaly else "")

    @admin.display(description="amount")
    def amount(self, refund: Refund) -> str:
        return refund_money(refund)

    @admin.display(description="asked for (UTC)", ordering="created_at")
    def asked_for(self, refund: Refund) -> str:
        return utc(refund.created_at)

    @admin.display(description="sent (UTC)")
    def sent(self, refund: Refund) -> str:
        return utc(refund.submitted_at)

    @admin.display(description="next question (UTC)")
    def next_question(self, refund: Refund) -> str:
        return utc(refund.next_query_at)


@admin.register(PaymentEvent)
class PaymentEventAdmin(WholeTermSearch, MoneyAdmin):
    """A new status of a payment, and whether the shop has acted on it."""

    list_display = ("name", "payment_link", "paid", "refunded", "created", "handled", "attempts")
    list_filter = (Waiting,)
    list_select_related = ("payment",)
    search_fields = ("payment__id",)
    search_help_text = "The number of the payment."
    ordering = ("-pk",)
    fields = ("name", "payment_link", "paid", "refunded", "attempts", "created", "handled")

    def search(self, rows: QuerySet[PaymentEvent], term: str) -> QuerySet[PaymentEvent]:
        ours = number_in(term)
        return rows.filter(payment_id=ours) if ours else rows.none()

    @admin.display(description="event")
    def name(self, event: PaymentEvent) -> str:
        return f"{event.number} {event.status.replace('_', ' ')}"

    @admin.display(description="payment")
    def payment_link(self, event: PaymentEvent) -> SafeString | str:
        return link_to_payment(event.payment_id)

    @admin.display(description="paid by then")
    def paid(self, event: PaymentEvent) -> str:
        return money(event.paid_minor, event.payment.currency)

    @admin.display(description="refunded by then")
    def refunded(self, event: PaymentEvent) -> str:
        return money(event.refunded_minor, event.payment.currency)

    @admin.display(description="happened (UTC)", ordering="pk")
    def created(self, event: PaymentEvent) -> str:
        return utc(event.created_at)

    @admin.display(description="acted on (UTC)")
    def handled(self, event: PaymentEvent) -> str:
        return utc(event.handled_at)
