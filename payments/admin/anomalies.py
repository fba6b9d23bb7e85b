"""Anomalies in the admin, as a list of work: open ones first, oldest first."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.utils.text import capfirst
from django.utils.timesince import timesince
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import newest
from idempotency.admin.pages import column, time_column
from payments import display
from payments.admin.find import numbers_in
from payments.admin.forms import ResolutionForm
from payments.admin.money_filters import AtChannel, ToDo
from payments.admin.pages import Act, ResolvableAdmin, advice, link, resolving, section, table
from payments.channels import configured as channels
from payments.models import Anomaly, Refund
from payments.operations import approval
from payments.states import OPEN_REFUNDS, RefundStatus

Kind = Anomaly.Kind

WHAT_TO_DO: Mapping[str, Any] = {
    Kind.UNKNOWN_TRADE: _("Find out whose trade it is. If it is nobody's, refund it at the provider."),
    Kind.AMOUNT_MISMATCH: _("It is refunded. See that the refund ends, and find out how the amount arose."),
    Kind.MERCHANT_MISMATCH: _("The money is not ours. Find out why that merchant's notification comes to us."),
    Kind.PAID_AFTER_CLOSE: _("It is refunded. See that the refund ends."),
    Kind.PAID_TWICE: _("The second payment is refunded. See that the refund ends."),
    Kind.CONTENT_CHANGED: _(
        "Compare both contents with the provider's own pages, then settle by hand what differs."
    ),
    Kind.REFUND_EXCEEDS_PAID: _("More went back than came in. Compare with the provider's own pages."),
    Kind.REFUND_FAILED: _(
        "See what the provider said, and the refund. Failed: nothing was moved; find out why, then refund again or"
        " by another way. Open: it continues under its number as soon as our account there has the money"
        " (NOT_ENOUGH), or after it was sent on in the provider's pages (ABNORMAL: it left our account)."
        " Succeeded: it came back to our account; pay it out by another way."
    ),
    Kind.NOTIFICATION_FAILED: _(
        "See what failed, have it put right, then process the notification again. Acknowledged: the provider does"
        " not send it again; if nothing can be put right, settle it there."
    ),
    Kind.DISPUTED: _(
        "Open: answer it in the provider's own pages by the date in the details, or accept it there; do not refund"
        " it besides. Lost: what was taken is gone; see what becomes of the order. Won: see that it was returned."
    ),
}
APPROVE_OR_DECLINE = _("Its refund is larger than those that go back by themselves: approve or decline it.")


def _advice(row: Anomaly) -> str:
    refund = getattr(row, "refund", None)
    if refund is not None and refund.status == RefundStatus.SUCCEEDED:
        return gettext("Nothing to do: refunded.")
    return str(APPROVE_OR_DECLINE) if row.needs_approval else advice(row, WHAT_TO_DO)


def _stake(row: Anomaly) -> str:
    about = {"what": capfirst(row.get_kind_display()), "money": display.at_stake(row)}
    return gettext("%(what)s: %(money)s at stake.") % about


def _resolved(row: Anomaly) -> list[str]:
    return [
        _stake(row),
        _advice(row),
        *_of_its_refund(getattr(row, "refund", None)),
        gettext(
            "Resolving moves no money. It takes the anomaly off the list of open work, until something new is"
            " received under its reference."
        ),
    ]


def _of_its_refund(refund: Refund | None) -> list[str]:
    if refund is None:
        return []
    about = {"money": display.refund_money(refund), "status": refund.get_status_display()}
    goes_on = gettext("It continues, resolved or not.") if refund.status in OPEN_REFUNDS else ""
    return [" ".join(filter(None, [gettext("The policy gives %(money)s back: %(status)s.") % about, goes_on]))]


# of a refund that waits for approval
APPROVE = Act(
    permission="refund_payment",
    title=_("Approve the refund"),
    button=_("Give the money back"),
    sentences=lambda row: [_stake(row), gettext("All of it goes back to the payer, once. That cannot be undone.")],
    carry_out=lambda row, form, by: approval.approve(row, by=by),
    is_open=lambda row: row.needs_approval,
)
DECLINE = Act(
    permission="refund_payment",
    title=_("Decline the refund"),
    button=_("Decline it"),
    sentences=lambda row: [
        _stake(row),
        gettext("Nothing is refunded by us: the money stays held. The shopper's page says so."),
    ],
    carry_out=lambda row, form, by: approval.decline(row, by=by),
    is_open=lambda row: row.needs_approval,
    form=lambda row, given: ResolutionForm(given),
)


@admin.register(Anomaly)
class AnomalyAdmin(ResolvableAdmin):
    """Events that a person should look at; the policy has been carried out by then."""

    appears = _(
        "An anomaly appears when money comes twice, late or in another amount, or a refund or notification fails."
    )
    list_display = ("kind", "age", "stake", "policy", "payment_link", "provider", "reference", "settled")
    list_filter = (ToDo, newest("kind", Kind.choices), AtChannel)
    acts = {"resolve": resolving("resolve_anomaly", _resolved), "approve": APPROVE, "decline": DECLINE}
    search_help_text = _("A whole reference, the provider's number of the trade, or the number of a payment.")
    list_select_related = ("payment", "refund", "refund__payment")
    fieldsets = (
        section(None, "kind", "what_to_do", "stake", "policy", "payment_link", "refund_link"),
        section(_("Known facts"), "provider", "reference", "found", "details"),
        section(_("Resolution"), "in_the_end", "settled"),
    )

    def search(self, rows: QuerySet[Anomaly], term: str) -> QuerySet[Anomaly]:
        """Search with all channels and kinds, because the unique index begins with them."""
        names = [term[:160], *(f"{one.merchant}/{term}"[:160] for one in channels.current().values())]
        filed = Q(kind__in=Kind.values, channel__in=["", *channels.names()], reference__in=names)
        return rows.filter(filed | Q(payment_id__in=numbers_in(term)))

    what_to_do = column(_advice, _("what to do"))
    age = column(lambda anomaly: timesince(anomaly.created_at, depth=1), _("age"))
    stake = column(display.at_stake, _("at stake"))
    policy = column(display.policy, _("what the policy did"))
    refund_link = column(lambda anomaly: link(getattr(anomaly, "refund", None)), _("refund"))
    found = time_column("created_at", _("found at"))
    details = column(lambda anomaly: table(display.details(anomaly), gettext("nothing more")), _("details"))
