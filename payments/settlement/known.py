"""Rows as a decision about money needs them; the models' own instances take longer to make than to decide on."""

import uuid
from dataclasses import dataclass, fields

from payments.models import Payment
from payments.states import LIVE_ATTEMPTS

BY_HAND = "operator"  # the source of what an operator told


@dataclass(slots=True)
class KnownPayment:
    """What a decision needs of a `Payment`."""

    id: uuid.UUID
    order_id: uuid.UUID
    status: str
    version: int
    paid_minor: int
    refunded_minor: int
    reserved_minor: int

    @classmethod
    def of(cls, payment: Payment) -> "KnownPayment":
        """As the instance has it."""
        return cls(*(getattr(payment, name) for name in columns(cls)))


@dataclass(slots=True)
class KnownAttempt:
    """What a decision needs of an `Attempt` of a payment that is known."""

    id: uuid.UUID
    channel: str
    merchant: str
    amount_minor: int
    currency: str
    status: str

    @property
    def out_trade_no(self) -> str:
        """As `Attempt.out_trade_no`."""
        return self.id.hex

    @property
    def is_live(self) -> bool:
        """As `Attempt.is_live`."""
        return self.status in LIVE_ATTEMPTS


@dataclass(slots=True)
class KnownFact:
    """What a decision needs of an `Observation`.

    Attributes:
        id: None before it is kept.
        source: who told it first.
    """

    id: int | None
    channel: str
    merchant: str
    provider_txn_id: str
    kind: str
    attempt_id: uuid.UUID
    amount_minor: int
    currency: str
    out_refund_no: str
    paid_txn_id: str
    credited: bool
    source: str


def columns(known: type[KnownPayment | KnownAttempt | KnownFact]) -> tuple[str, ...]:
    """Of its table, in the order in which it is made of them."""
    return tuple(field.name for field in fields(known))
