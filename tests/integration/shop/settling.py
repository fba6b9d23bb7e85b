"""Handing a provider's fact over, as a callback or the timer does."""

from django.db import transaction

from payments.models import Attempt
from payments.providers.base import Fact
from payments.settlement.observations import apply_observation


def settle(fact: Fact) -> None:
    """Fold one fact in a transaction of its own."""
    with transaction.atomic():
        apply_observation(fact, source="callback")


def number_of(order_id: str, channel: str) -> str:
    """The out_trade_no of the order's newest attempt by `channel`."""
    return Attempt.objects.filter(payment__order_id=order_id, channel=channel).order_by("-id")[0].out_trade_no
