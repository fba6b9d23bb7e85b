"""Anomalies in the admin, as a list of work: what is open, the oldest first."""

from typing import Any

from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from idempotency.admin.filters import newest
from idempotency.admin.pages import Tool
from idempotency.admin.searching import WholeTermSearch
from idempotency.admin.timeline import utc
from payments import legible
from payments.admin.filters import CHANNELS, ToDo
from payments.admin.forms import ResolutionForm
from payments.admin.pages import MoneyAdmin, Question, link, link_to_payment, number_in
from payments.channels import configured as channels
from payments.models import Anomaly, Refund
from payments.operations import decisions
from payments.states import OPEN_REFUNDS

Kind = Anomaly.Kind

WHAT_TO_DO = {
    Kind.UNKNOWN_TRADE: "Find out whose trade it is. If it is nobody's, give the money back at the provider.",
    Kind.AMOUNT_MISMATCH: "Its money is given back. See that the refund ends, and ask how the amount came about.",
    Kind.MERCHANT_MISMATCH: "The money is not ours. Find out why that merchant's word comes to us.",
    Kind.PAID_AFTER_CLOSE: "Its money is given back. See that the refund ends.",
    Kind.PAID_TWICE: "The second payment is given back. See that the refund ends.",
    Kind.CONTENT_CHANGED: "Compare both contents with the provider's own pages, then settle by hand what differs.",
    Kind.REFUND_EXCEEDS_PAID: "More went back than came in. Compare with the provider's own pages.",
    Kind.REFUND_FAILED: "See what the provider said, and the refund. Failed: nothing was moved; find out why, then"
    " refund anew or by another way. Open: it goes on under its number as soon as our account there has the money"
    " (NOT_ENOUGH), or after it was sent on in the provider's pages (ABNORMAL: it left our account). Succeeded: it"
    " came back to our account; pay it out by another way.",
    Kind.NOTIFICATION_FAILED: "See what failed, have it put right, then process the notification again."
    " Acknowledged: what it says fits in no column, and it does not come again by itself; if nothing can be put"
    " right, settle it with the provider.",
}


@admin.register(Anomaly)
class AnomalyAdmin(WholeTermSearch, MoneyAdmin):
    """What a person should look at; the policy has been carried out by then."""

    list_display = ("kind", "age", "stake", "policy", "payment_link", "channel", "reference", "settled")
    list_filter = (ToDo, newest("kind", Kind.choices), newest("channel", CHANNELS))
    is_decided_about = True
    search_fields = ("reference",)
    search_help_text = "A whole reference, the provider's number of the trade, or the number of a payment."
    # what is open has no time of its end and comes first, oldest first; what was settled last comes next
    ordering = (F("resolved_at").desc(nulls_first=True), "pk")
    list_select_related = ("payment", "refund", "refund__payment")
    fieldsets = (
        (None, {"fields": ("kind", "what_to_do", "stake", "policy", "payment_link", "refund_link")}),
        ("What is known", {"fields": ("channel", "reference", "found", "told")}),
        ("Resolution", {"fields": ("resolution", "settled")}),
    )

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.resolve_view)
        return [path("<int:pk>/resolve/", view, name="payments_anomaly_resolve"), *super().get_urls()]

    def tools(self, request: HttpRequest, row: Anomaly) -> list[Tool]:
        if row.resolved_at is not None or not self.may(request, "resolve_anomaly"):
            return []
        return [Tool(address=reverse("admin:payments_anomaly_resolve", args=[row.pk]), words="Resolve")]

    def search(self, rows: QuerySet[Anomaly], term: str) -> QuerySet[Anomaly]:
        """The unique index begins with kind and channel, so all of them are named."""
        names = [term[:160], *(f"{one.merchant}/{term}"[:160] for one in channels.current().values())]
        filed = Q(kind__in=Kind.values, channel__in=["", *(name for name, _ in CHANNELS)], reference__in=names)
        ours = number_in(term)
        return rows.filter(filed | Q(payment_id=ours) if ours else filed)

    @admin.display(description="age")
    def age(self, anomaly: Anomaly) -> str:
        return timesince(anomaly.created_at, depth=1)

    @admin.display(description="at stake")
    def stake(self, anomaly: Anomaly) -> str:
        return legible.at_stake(anomaly)

    @admin.display(description="what the policy did")
    def policy(self, anomaly: Anomaly) -> str:
        return legible.policy(anomaly)

    @admin.display(description="payment")
    def payment_link(self, anomaly: Anomaly) -> SafeString | str:
        return link_to_payment(anomaly.payment_id)

    @admin.display(description="its refund")
    def refund_link(self, anomaly: Anomaly) -> SafeString | str:
        return link(getattr(anomaly, "refund", None))

    @admin.display(description="what to do")
    def what_to_do(self, anomaly: Anomaly) -> str:
        return WHAT_TO_DO[Kind(anomaly.kind)]

    @admin.display(description="found (UTC)")
    def found(self, anomaly: Anomaly) -> str:
        return utc(anomaly.created_at)

    @admin.display(description="settled (UTC)")
    def settled(self, anomaly: Anomaly) -> str:
        return utc(anomaly.resolved_at)

    @admin.display(description="told")
    def told(self, anomaly: Anomaly) -> SafeString | str:
        lines = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', legible.told(anomaly))
        return (
            format_html('<table class="payments-told"><tbody>{}</tbody></table>', lines)
            if lines
            else "nothing more"
        )

    def resolve_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Settle it, in words."""
        self.require(request, "resolve_anomaly")
        anomaly = get_object_or_404(Anomaly.objects.select_related("payment", "refund__payment"), pk=pk)
        question = Question(
            title="Resolve an anomaly",
            sentences=[
                f"{anomaly.get_kind_display().capitalize()}: {legible.at_stake(anomaly)} at stake.",
                WHAT_TO_DO[Kind(anomaly.kind)],
                *_of_its_refund(getattr(anomaly, "refund", None)),
                "Resolving moves no money. It takes the anomaly off the list of open work, until something else is"
                " told under its reference.",
            ],
            button="Resolve it",
            form=ResolutionForm(request.POST or None),
            act=lambda given, by: decisions.resolve(anomaly, by=by),
        )
        return self.ask_first(request, anomaly, question)


def _of_its_refund(refund: Refund | None) -> list[str]:
    if refund is None:
        return []
    about = f"The policy gives {legible.refund_money(refund)} back: {refund.get_status_display()}."
    return [about + (" That goes on, resolved or not." if refund.status in OPEN_REFUNDS else "")]
