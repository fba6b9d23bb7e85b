"""Parts of a decision about money: what follows from a fact, nothing done yet. Pure."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from payments.providers.base import Fact
from payments.settlement.state import AttemptRow, FactRow, PaymentRow, PaymentState, RefundRow
from payments.states import AnomalyKind


class Outcome(StrEnum):
    """Outcome of a fact."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    ANOMALY = "anomaly"
    HELD = "held"  # a refund or dispute whose payment is not known yet; it counts as soon as that is


class OrderEvent(StrEnum):
    """Event that the order is asked about (`PAID`) or informed of."""

    PAID = "paid"
    REFUNDED = "refunded"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A fact to store, and its amount to book, in minor units: money not in the books yet."""

    fact: FactRow
    amount_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefund:
    """Money to give back at once; `id` follows from the anomaly, so it goes back once."""

    id: uuid.UUID
    attempt_id: uuid.UUID
    payment_id: uuid.UUID
    amount_minor: int
    reason: str

    @classmethod
    def of(cls, filed: Any) -> "PolicyRefund":
        """Make the refund of an `Anomaly` or `Filing`; the same anomaly's is the same refund."""
        attempt_id = uuid.UUID(hex=filed.detail["out_trade_no"])
        return cls(
            id=uuid.uuid5(attempt_id, f"policy refund {filed.kind} {filed.reference}"),
            attempt_id=attempt_id,
            payment_id=filed.payment_id,
            amount_minor=filed.detail["amount_minor"],
            reason=filed.kind.replace("_", " "),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """An anomaly to file, once per kind, channel and reference."""

    kind: AnomalyKind
    channel: str
    reference: str
    payment_id: uuid.UUID | None
    detail: Mapping[str, Any]
    refund: PolicyRefund | None = None  # what policy gives back because of it
    is_news: bool = True  # False: it only says the same again, of later; what is resolved stays so

    @classmethod
    def about(cls, kind: AnomalyKind, fact: Fact, *, payment_id: uuid.UUID | None = None, **more: Any) -> "Filing":
        """File a fact, by the name that `reference_of` gives it."""
        return cls(
            kind=kind,
            channel=fact.channel,
            reference=reference_of(fact.merchant, fact.provider_txn_id),
            payment_id=payment_id,
            detail={
                "out_trade_no": fact.out_trade_no,
                "amount_minor": fact.amount_minor,
                "currency": fact.currency,
                "merchant": fact.merchant,
                **more,
            },
        )


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


def reference_of(merchant: str, provider_txn_id: str) -> str:
    """Name the anomalies about a fact."""
    return f"{merchant}/{provider_txn_id}"
