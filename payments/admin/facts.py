"""Facts in the admin, found by the provider's number."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from idempotency.admin.filters import newest
from idempotency.admin.pages import column, time_column
from idempotency.admin.searching import numbers_among_newest, numbers_of
from payments.admin.money_filters import AtChannel
from payments.admin.pages import MoneyAdmin, link, link_to_payment, number_in
from payments.channels import configured as channels
from payments.display import source_in_words
from payments.models import Attempt, Observation, Refund
from payments.models.choices import choices
from payments.providers.base import FactKind


def with_number(term: str) -> QuerySet[Observation]:
    """Find facts of that number at all our merchant accounts, which begin the unique index."""
    found = Observation.objects.none()
    for provider in channels.current().values():
        ours = Observation.objects.filter(
            channel=provider.channel, merchant=provider.merchant, provider_txn_id=term
        )
        found = found | ours
    return found


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
        ours = number_in(term)
        if ours is not None:
            attempts = list(Attempt.objects.filter(Q(pk=ours) | Q(payment_id=ours)).values_list("pk", flat=True))
            refunded = list(Refund.objects.filter(pk=ours).values_list("attempt_id", flat=True))
            of_refund = Q(attempt__in=refunded, out_refund_no=ours.hex)
            found |= numbers_of(Observation.objects.filter(Q(attempt__in=attempts) | of_refund), "attempt_id")
        return rows.filter(pk__in=found)

    learned = column(source_in_words, _("source"))
    attempt_link = column(lambda fact: link(fact.attempt), _("attempt"))
    payment_link = column(lambda fact: link_to_payment(fact.attempt.payment_id), _("payment"))
    occurred = time_column("occurred_at", _("at the provider"))
    observed = time_column("observed_at", _("received at"))
