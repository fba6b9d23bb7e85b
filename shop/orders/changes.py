"""Hints to an order's open pages that it has changed; a page then reads the order."""

from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from idempotency.locks import Topic
from payments.channels.sharing import shared


def topic(order_id: UUID, redis: Any) -> Topic:
    return Topic(f"order:{order_id.hex}", client=redis)


def announce(order_id: UUID) -> None:
    """Have the open pages of an order read it again, once the transaction has committed."""
    transaction.on_commit(partial(_hint, order_id))


def _hint(order_id: UUID) -> None:
    # safe without Redis: an open page reads the order every few seconds
    shared("live status", lambda redis: topic(order_id, redis).hint("changed"), otherwise=None)
