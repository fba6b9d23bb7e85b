"""Handing a provider's fact over, as a callback or the timer does."""

from typing import Any
from uuid import UUID

from django.conf import settings

from idempotency.postgres.statements import UnitOfWork
from payments.models import Attempt
from payments.providers.base import Fact
from payments.settlement.settle import settle as settle_facts
from shop.orders import lifecycle


def settle(fact: Fact) -> None:
    """Fold one fact in a transaction of its own."""
    settle_facts(fact, source="callback")


def number_of(order_id: str, channel: str) -> str:
    """The out_trade_no of the order's newest attempt by `channel`."""
    return Attempt.objects.filter(payment__order_id=order_id, channel=channel).order_by("-id")[0].out_trade_no


def on_payment(*, order_id: UUID, event: str) -> bool:
    """Have the order take a step as a settlement does."""
    return lifecycle.on_payment(order_id=order_id, event=event, work=UnitOfWork())


def keyed(redis_there: bool) -> dict[str, Any]:
    """Settings of the shop's keys, with Redis or on the ledger alone."""
    return settings.IDEMPOTENCY | ({} if redis_there else {"REDIS": None})
