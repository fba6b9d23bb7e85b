"""Pages of attempts, refunds, facts, events, and operators' acts."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import Opened, newest
from idempotency.admin.labels import utc
from idempotency.admin.pages import column, in_utc, time_column
from idempotency.admin.searching import LOOKED_AT, numbers_among_newest, numbers_of
from payments.admin.badges import badge
from payments.admin.find import numbers_in, with_number
from payments.admin.money_filters import AtAccount, AtChannel, Unanswered, Waiting
from payments.admin.pages import MoneyAdmin, OwnNumberAdmin, link, link_to_payment
from payments.display import money, source_in_words, stored_text
from payments.models import Attempt, AuditEntry, Observation, PaymentEvent, Refund
from payments.models.choices import choices
from payments.providers.base import FactKind
from payments.states import AttemptStatus, RefundStatus


@admin.register(Attempt)
class AttemptAdmin(OwnNumberAdmin):
    """Trade at one provider. The shopper's data and means of payment are not shown."""

    appears = _("An attempt appears when a payment is opened at a provider.")
    list_display = (
        *("number", "merchant_account", "method", "state", "amount"),
        *("payment_link", "opened", "questions"),
    )
    list_filter = (Opened, newest("status", choices(AttemptStatus)), AtAccount, Unanswered)
    search_help_text = _("Our number of the trade, or of the payment.")
    fields = (
        *("out_trade_no", "payment_link", "provider", "merchant_account", "method", "merchant", "state", "said"),
        *("amount", "description", "reference", "opened", "submitted", "expires", "next_question", "query_count"),
    )

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
        return rows.filter(payment_id__in=numbers_in(term))

    name = column(lambda event: f"{event.number} {event.status_in_words}", _("event"))
    paid = column(lambda event: money(event.paid_minor, event.payment.currency), _("paid by then"))
    refunded = column(lambda event: money(event.refunded_minor, event.payment.currency), _("refunded by then"))
    created = time_column("created_at", _("happened at"))

    @admin.display(description=in_utc(_("handled at")))
    def handled(self, event: PaymentEvent) -> str:
        return utc(event.handled_at) if event.handled_at else badge("failed" if event.attempts else "waiting")


@admin.register(Observation)
class ObservationAdmin(MoneyAdmin):
    """A fact about money, once, from whatever source."""

    appears = _("A fact appears when a provider or an operator says that money moved.")
    list_display = ("provider_txn_id", "provider", "kind", "amount", "credited", "learned", "observed")
    list_filter = (newest("kind", choices(FactKind)), AtChannel)
    search_help_text = _("A whole number: the provider's own, or ours of the payment, attempt or refund.")
    list_select_related = ("attempt",)
    fields = (
        *("provider_txn_id", "provider", "merchant", "kind", "amount", "credited", "learned"),
        *("occurred", "observed", "out_refund_no", "attempt_link", "payment_link"),
    )

    def search(self, rows: QuerySet[Observation], term: str) -> QuerySet[Observation]:
        """Search each number by its own index; of a former merchant account, among the newest."""
        found = numbers_of(with_number(term), "channel", "merchant", "provider_txn_id")
        found |= numbers_among_newest(rows, Q(provider_txn_id=term))
        if ours := numbers_in(term):
            of_ours = Q(pk__in=ours) | Q(payment_id__in=ours)
            attempts = list(Attempt.objects.filter(of_ours).values_list("pk", flat=True))
            refunded = list(Refund.objects.filter(pk__in=ours).values_list("attempt_id", flat=True))
            of_refund = Q(attempt__in=refunded, out_refund_no__in=[one.hex for one in ours])
            found |= numbers_of(Observation.objects.filter(Q(attempt__in=attempts) | of_refund), "attempt_id")
        return rows.filter(pk__in=found)

    learned = column(source_in_words, _("source"))
    attempt_link = column(lambda fact: link(fact.attempt), _("attempt"))
    payment_link = column(lambda fact: link_to_payment(fact.attempt.payment_id), _("payment"))
    occurred = time_column("occurred_at", _("at the provider"))
    observed = time_column("observed_at", _("received at"))


@admin.register(AuditEntry)
class AuditEntryAdmin(MoneyAdmin):
    """Every act once, the newest first; nobody can change one."""

    appears = _("An entry appears when an operator refunds, records or resolves something.")
    list_display = ("at", "operator", "about", "message")
    search_help_text = format_lazy(
        _("A whole subject (anomaly:7), or a user name among the newest {newest:,} entries, as it was then."),
        newest=LOOKED_AT,
    )
    fields = ("at", "operator", "operator_id", "about", "message")

    def search(self, rows: QuerySet[AuditEntry], term: str) -> QuerySet[AuditEntry]:
        found = numbers_of(rows.filter(subject=term), "subject") | numbers_among_newest(rows, Q(operator=term))
        return rows.filter(pk__in=found)

    at = time_column("created_at", _("at"))

    @admin.display(description=_("about"))
    def about(self, entry: AuditEntry) -> SafeString | str:
        """Link the row's page, without looking the row up."""
        model, _, number = entry.subject.partition(":")
        try:
            address = reverse(f"admin:payments_{model}_change", args=[number])
        except NoReverseMatch:
            return entry.subject
        return format_html('<a href="{}">{}</a>', address, entry.subject)
