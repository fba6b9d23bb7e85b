"""Deliveries for ``PAYMENTS["WEBHOOKS"]``, staged in the deciding transaction."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from idempotency.ids import new_id
from idempotency.postgres.statements import Statement
from payments.conf import config
from payments.settlement import queries
from payments.settlement.decision import Filing
from payments.settlement.state import PaymentRow
from payments.states import EVENT_OF, PaymentStatus


def of_status(payment: PaymentRow) -> list[Statement]:
    """Stage the payment's new status; send it after the UPDATE that locks the row."""
    data = {
        "payment": payment.id.hex,
        "order": payment.order_key or payment.order_id.hex,
        "status": payment.status,
        "currency": payment.currency,
        "paid_minor": payment.paid_minor,
        "refunded_minor": payment.refunded_minor,
    }
    return staged(EVENT_OF[PaymentStatus(payment.status)], payment.id, data)


def anomaly_data(filing: Filing) -> dict[str, Any]:
    """Return what a delivery says about an anomaly."""
    return {
        "payment": filing.payment_id.hex if filing.payment_id else None,
        "kind": filing.kind.value,
        "channel": filing.channel,
        "reference": filing.reference,
        "detail": dict(filing.detail),
    }


def addressed(event_type: str) -> tuple[list[UUID], list[str], int]:
    """Return new numbers and the names of the endpoints that get this type, and their count."""
    names = [name for name, endpoint in config().webhooks.items() if event_type in endpoint.events]
    return [new_id() for _ in names], names, len(names)


def staged(event_type: str, payment_id: UUID | None, data: dict[str, Any]) -> list[Statement]:
    """Stage what is decided for certain, for each endpoint that gets this type."""
    numbers, names, count = addressed(event_type)
    values = [event_type, payment_id, Jsonb(data), numbers, names, count]
    return [Statement(queries.STAGE_DELIVERIES, values)] if count else []
