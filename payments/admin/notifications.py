"""Notifications in the admin: the raw bytes of the providers, and their processing."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin import answer_display
from idempotency.admin.filters import newest
from idempotency.admin.labels import label
from idempotency.admin.pages import column, time_column
from payments import display
from payments.admin.badges import badge_column
from payments.admin.find import numbers_in
from payments.admin.money_filters import AtAccount
from payments.admin.pages import Act, MoneyAdmin, breakable, link_to_number, link_to_payment, section
from payments.channels import configured as channels
from payments.display import stored_text
from payments.models import Attempt, Notification
from payments.operations import actions
from payments.settlement.state import as_id

Verdict = Notification.Verdict

WHAT_AGAIN_DOES = {
    Verdict.APPLIED: _("It was applied before, so most likely nothing changes."),
    Verdict.QUARANTINED: _(
        "It arrived under a known id with other content. Its facts will count, if they fit: process it only if you"
        " know that it is right."
    ),
    Verdict.ERROR: _("It failed before, and nothing of it is applied. If it works now, its anomaly is resolved."),
}


def _processed_again(row: Notification) -> list[str]:
    verified = gettext(
        "This notification (%(type)s, %(verdict)s) is verified with the keys that we hold now, as of"
        " its arrival, and its facts are settled again."
    )
    return [
        verified % {"type": row.event_type, "verdict": row.get_verdict_display()},
        str(WHAT_AGAIN_DOES.get(Verdict(row.verdict), _("If it holds nothing new, nothing changes."))),
        gettext("Known facts count once only. The provider is not asked."),
    ]


@admin.register(Notification)
class NotificationAdmin(MoneyAdmin):
    """Row of a notification, however many copies came."""

    appears = _("A notification appears when a provider sends one.")
    list_display = ("short_id", "outcome", "event", "merchant_account", "trade", "received", "attempts")
    list_filter = (newest("verdict", Verdict.choices), AtAccount)
    is_decided_about = True
    acts = {
        "replay": Act(
            permission="replay_notification",
            title=_("Process again"),
            button=_("Process it again"),
            sentences=_processed_again,
            carry_out=lambda row, form, by: actions.process_again(row, by=by),
        )
    }
    search_help_text = _("A whole notification id, or our number of the trade.")
    fieldsets = (
        section(None, "notification_id", "merchant_account", "event_type", "outcome", "why", "payment", "trade"),
        section(_("Handling"), "received", "processed", "attempts", "digest"),
        section(_("As received, the payer masked"), "headers_text", "body_text"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Notification]:
        return super().get_queryset(request).defer("body", "headers")

    def search(self, rows: QuerySet[Notification], term: str) -> QuerySet[Notification]:
        trades = [term, *(ours.hex for ours in numbers_in(term))]
        return rows.filter(Q(channel__in=channels.names(), notification_id=term) | Q(out_trade_no__in=trades))

    @admin.display(description=_("notification"))
    def short_id(self, row: Notification) -> str:
        return row.notification_id if len(row.notification_id) <= 24 else f"{row.notification_id[:23]}…"

    @admin.display(description=_("our number"))
    def trade(self, row: Notification) -> SafeString | str:
        """Link the attempt without looking it up: a list must not do so for each row."""
        number = as_id(row.out_trade_no)
        return link_to_number("attempt", number) if number else row.out_trade_no or "-"

    @admin.display(description=_("payment"))
    def payment(self, row: Notification) -> SafeString | str:
        number = as_id(row.out_trade_no)
        attempt = Attempt.objects.filter(pk=number).only("payment_id").first() if number else None
        return link_to_payment(attempt.payment_id if attempt else None)

    event = column(lambda row: breakable(row.event_type), label("event_type"))
    outcome = badge_column("verdict", _("verdict"))
    why = column(lambda row: stored_text(row.detail) or "-", _("detail"))
    received = time_column("received_at")
    processed = time_column("processed_at")
    headers_text = column(lambda row: answer_display.content(display.headers(row)), _("headers"))
    body_text = column(lambda row: answer_display.content(display.body(row)), _("body"))
