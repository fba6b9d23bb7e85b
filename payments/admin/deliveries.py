"""Deliveries in the admin: what left for which endpoint, with the answer of each attempt."""

import json
from datetime import datetime

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin import answer_display
from idempotency.admin.filters import Opened, newest
from idempotency.admin.labels import label, utc
from idempotency.admin.pages import column, in_utc, time_column
from payments.admin.badges import STATUS, badge
from payments.admin.pages import Act, OwnNumberAdmin, breakable, shortened, table
from payments.conf import EVENT_TYPES
from payments.display import ANSWERED, stored_text
from payments.models import Delivery
from payments.operations import deliveries

Status = Delivery.Status
RECEIVED = ANSWERED % {"status": 2}  # begins the stored answer of a success: "answered 204"


def _sent_again(row: Delivery) -> list[str]:
    about = {"type": row.type, "status": row.get_status_display(), "endpoint": row.endpoint}
    return [
        gettext("%(type)s (%(status)s) goes to %(endpoint)s again, as it was decided then.") % about,
        gettext("It has the same webhook-id: a receiver that has applied it will not apply it twice."),
        gettext("No money moves."),
    ]


@admin.register(Delivery)
class DeliveryAdmin(OwnNumberAdmin):
    """Row for each decision and endpoint."""

    appears = _("A delivery appears when a decision about a payment is due at an endpoint.")
    list_display = ("number", "state", "event", "endpoint", "payment_link", "happened", "attempts")
    list_filter = (
        Opened,
        newest("status", Status.choices),
        newest("type", [(name, name) for name in EVENT_TYPES]),
    )
    is_decided_about = True
    acts = {
        "replay": Act(
            permission="replay_delivery",
            title=_("Send again"),
            button=_("Send it again"),
            sentences=_sent_again,
            carry_out=lambda row, form, by: deliveries.send_again(row, by=by),
            is_open=lambda row: row.status != Status.SENDING,
        )
    }
    search_help_text = _("The webhook-id, or the number of the payment.")
    fields = (
        *("webhook_id", "type", "endpoint", "state", "payment_link", "sequence", "said", "happened"),
        *("next_attempt", "given_up", "delivered", "answers"),
    )

    number = column(lambda row: shortened(row.pk), _("delivery"))
    webhook_id = column(lambda row: row.pk.hex, "webhook-id")
    event = column(lambda row: breakable(row.type), label("type"))
    said = column(lambda row: answer_display.content(json.dumps(row.data).encode()), _("data"))
    happened = time_column("created_at", _("decided at"))
    delivered = time_column("delivered_at")
    given_up = time_column("ends_at", _("given up after"))

    @admin.display(description=STATUS)
    def state(self, row: Delivery) -> SafeString:
        """Set deliveries that wait after a failure apart from fresh ones."""
        has_failed = any(not one.get("answer", "").startswith(RECEIVED) for one in row.log)
        if row.status == Status.WAITING and has_failed:
            return badge("uncertain", _("will retry"))
        return badge(row.status, row.get_status_display())

    @admin.display(description=in_utc(_("next attempt")))
    def next_attempt(self, row: Delivery) -> str:
        return utc(row.due_at) if row.status == Status.WAITING else "-"

    @admin.display(description=_("answers"))
    def answers(self, row: Delivery) -> SafeString | str:
        """List the attempts; one without an answer has no end yet, or its process died."""
        no_end = gettext("no end yet")
        entries = (
            (utc(datetime.fromisoformat(one["at"])), stored_text(one.get("answer", no_end))) for one in row.log
        )
        return table(entries, gettext("none yet"))
