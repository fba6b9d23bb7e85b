"""Pages of attempts, refunds and events."""

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import Opened, newest
from idempotency.admin.labels import utc
from idempotency.admin.pages import column, in_utc, time_column
from payments.admin.badges import badge
from payments.admin.money_filters import AtAccount, Unanswered, Waiting
from payments.admin.pages import MoneyAdmin, OwnNumberAdmin, link, number_in, shortened
from payments.display import money, stored_text
from payments.models import Attempt, PaymentEvent, Refund
from payments.models.choices import choices
from payments.states import AttemptStatus, RefundStatus


@admin.register(Attempt)
class AttemptAdmin(OwnNumberAdmin):
    """One trade at one provider. The shopper's data and means of payment are not shown."""

    appears = _("An attempt appears when a payment is opened at a provider.")
    list_display = (
        "number",
        "merchant_account",
        "method",
        "state",
        "amount",
        "payment_link",
        "opened",
        "questions",
    )
    list_filter = (Opened, newest("status", choices(AttemptStatus)), AtAccount, Unanswered)
    search_help_text = _("Our number of the trade, or of the payment.")
    fields = (
        *("out_trade_no", "payment_link", "provider", "merchant_account", "method", "merchant", "state", "said"),
        *("amount", "description", "reference", "opened", "submitted", "expires", "next_question", "query_count"),
    )

    number = column(lambda attempt: shortened(attempt.pk), _("our number"))
    out_trade_no = column(lambda attempt: attempt.out_trade_no, _("our number"))
    opened = time_column("created_at", _("opened at"))
    submitted = time_column("submitted_at")
    expires = time_column("expires_at")
    questions = column(lambda attempt: attempt.query_count, _("times asked"))


@admin.register(Refund)
class RefundAdmin(OwnNumberAdmin):
    """Money on its way back."""

    appears = _("A refund appears when one is asked for, or when a duplicate or late payment goes back.")
    list_display = ("number", "state", "amount", "shown_reason", "payment_link", "asked_for")
    list_filter = (newest("status", choices(RefundStatus), by="created_at"), Unanswered)
    list_select_related = ("payment", "anomaly")
    search_help_text = _("Our number of the refund, or of the payment.")
    ordering = ("-created_at", "-pk")  # a policy refund's number follows from its anomaly's, not from the time
    fields = (
        *("out_refund_no", "payment_link", "attempt_link", "anomaly_link", "amount", "state", "said"),
        *("shown_reason", "asked_for", "sent", "next_question", "query_count"),
    )

    number = column(lambda refund: shortened(refund.pk), _("our number"))
    out_refund_no = column(lambda refund: refund.out_refund_no, _("our number"))
    attempt_link = column(lambda refund: link(refund.attempt), _("attempt"))
    anomaly_link = column(
        lambda refund: link(refund.anomaly, refund.anomaly.get_kind_display() if refund.anomaly else ""),
        _("anomaly"),
    )
    shown_reason = column(lambda refund: stored_text(refund.reason) or "-", _("reason"))
    asked_for = time_column("created_at", _("asked for"))
    sent = time_column("submitted_at", _("sent"))


@admin.register(PaymentEvent)
class PaymentEventAdmin(MoneyAdmin):
    """A new status of a payment, and its handling by the shop."""

    appears = _("An event appears with each new status of a payment.")
    list_display = ("name", "payment_link", "paid", "refunded", "created", "handled", "attempts")
    list_filter = (Waiting,)
    list_select_related = ("payment",)
    search_help_text = _("The number of the payment.")
    fields = ("name", "payment_link", "paid", "refunded", "attempts", "created", "handled")

    def search(self, rows: QuerySet[PaymentEvent], term: str) -> QuerySet[PaymentEvent]:
        ours = number_in(term)
        return rows.filter(payment_id=ours) if ours else rows.none()

    name = column(lambda event: f"{event.number} {event.status_in_words}", _("event"))
    paid = column(lambda event: money(event.paid_minor, event.payment.currency), _("paid by then"))
    refunded = column(lambda event: money(event.refunded_minor, event.payment.currency), _("refunded by then"))
    created = time_column("created_at", _("happened at"))

    @admin.display(description=in_utc(_("handled at")))
    def handled(self, event: PaymentEvent) -> str:
        return utc(event.handled_at) if event.handled_at else badge("failed" if event.attempts else "waiting")
