"""Telling the open pages of an order that it has changed. A hint and no record: who hears it looks for himself."""

from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from idempotency.locks import Topic
from payments.channels.sharing import shared


def topic(order_id: UUID, redis: Any) -> Topic:
    """Where an order's changes are told."""
    return Topic(f"order:{order_id.hex}", client=redis)


def tell(order_id: UUID) -> None:
    """Have the open pages of an order look at it, once the caller's transaction has committed."""
    transaction.on_commit(partial(_tell, order_id))


def _tell(order_id: UUID) -> None:
    # safe without: who listens looks by himself every few seconds
    shared("live status", lambda redis: topic(order_id, redis).hint("changed"), otherwise=None)
