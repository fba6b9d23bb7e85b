"""What a decision about money is made of: everything that follows from a fact, and nothing done yet. Pure."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from payments.settlement.state import AttemptRow, FactRow, PaymentRow, PaymentState, RefundRow
from payments.states import AnomalyKind


class Outcome(StrEnum):
    """What a fact did."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    ANOMALY = "anomaly"
    HELD = "held"  # a refund whose payment is not known yet; it counts as soon as that is


class OrderEvent(StrEnum):
    """What the order is asked (`PAID`) or informed of."""

    PAID = "paid"
    REFUNDED = "refunded"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A fact to store, and what to book of it, in minor units: money that moved and is not in the books yet."""

    fact: FactRow
    amount_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefund:
    """Money to give back at once; `id` follows from the anomaly, so it goes back once."""

    id: uuid.UUID
    attempt_id: uuid.UUID
    amount_minor: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """An anomaly to file, once per kind, channel and reference."""

    kind: AnomalyKind
    channel: str
    reference: str
    payment_id: uuid.UUID | None
    detail: Mapping[str, Any]
    refund: PolicyRefund | None = None  # what policy gives back because of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Everything that follows from one fact, and nothing done yet."""

    outcome: Outcome
    state: PaymentState | None  # afterwards; its payment has a higher version where any of its rows changes
    bookings: tuple[Booking, ...] = ()  # facts to store and book
    now_counted: tuple[FactRow, ...] = ()  # stored facts whose money was held and counts from now on
    ended: tuple[AttemptRow, ...] = ()  # with their new status
    to_close: tuple[AttemptRow, ...] = ()  # by the timer, at once: no shopper may find them open and pay again
    refunded: tuple[RefundRow, ...] = ()  # those of ours that have succeeded
    filings: tuple[Filing, ...] = ()
    events: tuple[PaymentRow, ...] = ()  # the payment at each new status, to be staged in this order
    order_events: tuple[OrderEvent, ...] = ()  # what the order is asked or informed of, in this order
