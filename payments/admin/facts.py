"""Facts in the admin: what providers told about money, and how one is found by the number that it has there."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.utils.safestring import SafeString

from idempotency.admin.filters import newest
from idempotency.admin.searching import WholeTermSearch, numbers_among_newest, numbers_of
from idempotency.admin.timeline import utc
from payments.admin.filters import CHANNELS
from payments.admin.pages import MoneyAdmin, link, link_to_payment, number_in
from payments.channels import configured as channels
from payments.legible import money
from payments.models import Attempt, Observation, Refund
from payments.models.choices import choices
from payments.providers.base import FactKind


def with_number(term: str) -> QuerySet[Observation]:
    """Facts of that number at any of our merchant accounts; the unique index begins with channel and merchant."""
    found = Observation.objects.none()
    for channel, provider in channels.current().items():
        ours = Observation.objects.filter(channel=channel, merchant=provider.merchant, provider_txn_id=term)
        found = found | ours
    return found


@admin.register(Observation)
class ObservationAdmin(WholeTermSearch, MoneyAdmin):
    """A fact about money, once, whoever told it."""

    list_display = ("provider_txn_id", "channel", "kind", "amount", "credited", "source", "observed")
    list_filter = (newest("kind", choices(FactKind)), newest("channel", CHANNELS))
    search_fields = ("provider_txn_id",)
    search_help_text = "A whole number: the provider's own, or ours of the payment, attempt or refund."
    list_select_related = ("attempt",)
    ordering = ("-pk",)
    fields = (
        *(
            "provider_txn_id",
            "channel",
            "merchant",
            "kind",
            "amount",
            "credited",
            "source",
            "occurred",
            "observed",
        ),
        *("out_refund_no", "attempt_link", "payment_link"),
    )

    def search(self, rows: QuerySet[Observation], term: str) -> QuerySet[Observation]:
        """Each number by the index that it has; of an account that we have no more, among the newest."""
        found = numbers_of(with_number(term), "channel", "merchant", "provider_txn_id")
        found |= numbers_among_newest(rows, Q(provider_txn_id=term))
        ours = number_in(term)
        if ours is not None:
            attempts = list(Attempt.objects.filter(Q(pk=ours) | Q(payment_id=ours)).values_list("pk", flat=True))
            refunded = list(Refund.objects.filter(pk=ours).values_list("attempt_id", flat=True))
            of_refund = Q(attempt__in=refunded, out_refund_no=ours.hex)
            found |= numbers_of(Observation.objects.filter(Q(attempt__in=attempts) | of_refund), "attempt_id")
        return rows.filter(pk__in=found)

    @admin.display(description="amount")
    def amount(self, fact: Observation) -> str:
        return money(fact.amount_minor, fact.currency)

    @admin.display(description="attempt")
    def attempt_link(self, fact: Observation) -> SafeString | str:
        return link(fact.attempt)

    @admin.display(description="payment")
    def payment_link(self, fact: Observation) -> SafeString | str:
        return link_to_payment(fact.attempt.payment_id)

    @admin.display(description="at the provider (UTC)")
    def occurred(self, fact: Observation) -> str:
        return utc(fact.occurred_at)

    @admin.display(description="told to us (UTC)", ordering="pk")
    def observed(self, fact: Observation) -> str:
        return utc(fact.observed_at)
