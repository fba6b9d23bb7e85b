"""A payment as known, frozen: all that a decision about its money reads. Pure."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from payments.providers.base import Fact, FactKind
from payments.states import OPEN_REFUNDS, AttemptStatus, OfAccount

BY_HAND = "operator"  # the source of a fact that an operator recorded


@dataclass(frozen=True, slots=True)
class PaymentRow:
    """The columns of a `Payment` that decisions read; its version guards every write."""

    id: uuid.UUID
    order_id: uuid.UUID
    currency: str
    status: str
    version: int
    paid_minor: int
    refunded_minor: int
    reserved_minor: int
    order_key: str = ""
    order_model: str = ""
    disputed_minor: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRow(OfAccount):
    """The columns of an `Attempt` that decisions read."""

    id: uuid.UUID
    channel: str
    merchant: str
    amount_minor: int
    currency: str
    status: str
    account_key: str = ""


@dataclass(frozen=True, slots=True)
class FactRow:
    """Columns of an `Observation`, stored or new; only a new one has `occurred_at`."""

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
    occurred_at: datetime | None = None

    @classmethod
    def of(cls, fact: Fact, attempt: AttemptRow, *, credited: bool, source: str) -> "FactRow":
        """Make the row of a fact about an attempt."""
        return cls(
            channel=fact.channel,
            merchant=fact.merchant,
            provider_txn_id=fact.provider_txn_id,
            kind=fact.kind.value,
            attempt_id=attempt.id,
            amount_minor=fact.amount_minor,
            currency=fact.currency,
            out_refund_no=fact.out_refund_no,
            paid_txn_id=fact.paid_txn_id,
            credited=credited,
            source=source,
            occurred_at=fact.occurred_at,
        )

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return (self.channel, self.merchant, self.provider_txn_id, self.kind)


@dataclass(frozen=True, slots=True)
class RefundRow:
    """Columns of a `Refund` that decisions read; `currency` is the refunded charge's."""

    id: uuid.UUID
    attempt_id: uuid.UUID
    amount_minor: int
    currency: str
    status: str
    anomaly_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentState:
    """Everything `decide` may look at."""

    payment: PaymentRow
    attempts: tuple[AttemptRow, ...]  # all of the payment's, oldest first
    facts: tuple[FactRow, ...] = ()  # about these, oldest first; and any with the identity of a fact to be decided
    refunds: tuple[RefundRow, ...] = ()
    account: str = ""  # at whose address these facts arrived; empty where the attempt's own was asked
    charging_again: frozenset[str] = frozenset()  # accounts where one number of ours can be charged more than once
    # currency → minor units; policy refunds no larger sum without an operator's approval
    approve_above: Mapping[str, int] = field(default_factory=dict)
    # (channel, reference) → detail of the anomaly about a dispute
    disputes: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    order_accepts_payment: bool = True  # until it is asked; False once the order has refused

    def find(self, fact: Fact) -> FactRow | None:
        wanted = (fact.channel, fact.merchant, fact.provider_txn_id, fact.kind.value)
        return next((stored for stored in self.facts if stored.identity == wanted), None)

    def attempt_of(self, fact: Fact) -> AttemptRow:
        """Return the attempt that the fact names. Raises LookupError if it is not this payment's."""
        for attempt in self.attempts:
            if attempt.id == as_id(fact.out_trade_no):
                return attempt
        raise LookupError(f"{fact.out_trade_no} is no attempt of payment {self.payment.id.hex}")

    def is_misdirected(self, attempt: AttemptRow) -> bool:
        """Check if the facts arrived at another account's address than the attempt's."""
        return self.account not in {"", attempt.account}

    def of(self, attempt: AttemptRow, kind: FactKind) -> list[FactRow]:
        return [fact for fact in self.facts if fact.attempt_id == attempt.id and fact.kind == kind]

    def confirmed_by(self, fact: Fact | FactRow, attempt: AttemptRow) -> FactRow | None:
        """Return the operator's record of the same money; None if the fact is about other money.

        An operator records money under our own number. So the provider's first fact under that number is the same
        money; a further one, which some providers may charge, is not.
        """
        reported = [
            one for one in self.of(attempt, FactKind(fact.kind)) if one.out_refund_no == fact.out_refund_no
        ]
        by_hand = next((one for one in reported if one.source == BY_HAND), None)
        if by_hand is None or by_hand.provider_txn_id == fact.provider_txn_id:  # that is the record itself
            return None
        by_provider = (one for one in reported if one.source != BY_HAND and one.merchant == attempt.merchant)
        first = next(by_provider, fact)
        is_first = fact.merchant == attempt.merchant and fact.provider_txn_id == first.provider_txn_id
        return by_hand if is_first else None

    def charges(self, attempt: AttemptRow, *, paid_txn_id: str = "") -> list[FactRow]:
        """List the attempt's charges, or the named one; none where that is not known yet."""
        charges = [fact for fact in self.of(attempt, FactKind.PAID) if fact.merchant == attempt.merchant]
        named = [
            self.confirmed_by(fact, attempt) or fact for fact in charges if fact.provider_txn_id == paid_txn_id
        ]
        by_hand_alone = all(fact.source == BY_HAND for fact in charges)  # its number is not known yet
        if named or (paid_txn_id and not by_hand_alone and attempt.account in self.charging_again):
            return named
        return charges

    def uncounted_refunds(self, attempt: AttemptRow) -> list[FactRow]:
        """List refunds that arrived before their payment, once that is credited."""
        return [
            fact
            for fact in self.of(attempt, FactKind.REFUNDED)
            if not fact.credited
            and fact.merchant == attempt.merchant
            and self.takes_back_credit(fact, attempt)
            and self.confirmed_by(fact, attempt) is None
        ]

    def takes_back_credit(self, refund: Fact | FactRow, attempt: AttemptRow) -> bool:
        """Check if a refund is of a credited charge; of two, of the one in its currency."""
        charges = self.charges(attempt, paid_txn_id=refund.paid_txn_id)
        return any(charge.credited and charge.currency == refund.currency for charge in charges)

    def went_back_whole(self, attempt: AttemptRow) -> bool:
        """Check if a fact (`Fact.is_whole`) says that all went back, single refunds included."""
        refunds = self.of(attempt, FactKind.REFUNDED)
        return any((one.provider_txn_id, one.out_refund_no) == (attempt.id.hex, "") for one in refunds)

    def unreported_minor(self, whole: Fact, attempt: AttemptRow) -> int:
        """Return what of a credited charge went back unreported, now that all of it has.

        0 where a refund of ours is open: only its own answer says how it ended.
        """
        paid_minor = self.total_minor(FactKind.PAID)
        counts = self.takes_back_credit(whole, attempt) and whole.amount_minor == paid_minor
        return paid_minor - self.total_minor(FactKind.REFUNDED) if counts and not self.reserved_minor() else 0

    def total_minor(self, kind: FactKind) -> int:
        """Sum the credited facts of that kind, in minor units."""
        ours = {attempt.id for attempt in self.attempts}
        return sum(
            fact.amount_minor
            for fact in self.facts
            if fact.kind == kind and fact.credited and fact.attempt_id in ours
        )

    def minor_of(self, kind: FactKind, moved: Fact) -> int:
        """Return the minor units of that kind's fact under the same number; 0: none."""
        stored = self.find(replace(moved, kind=kind))
        return stored.amount_minor if stored else 0

    def reserved_minor(self) -> int:
        """Sum the payer's open refunds, in minor units; what policy refunds was never credited."""
        return sum(
            refund.amount_minor
            for refund in self.refunds
            if refund.anomaly_id is None and refund.status in OPEN_REFUNDS
        )

    def disputed_minor(self) -> int:
        """Sum what disputes took of credited charges and did not return, in minor units."""
        moved = [
            sign * fact.amount_minor
            for kind, sign in ((FactKind.TAKEN, 1), (FactKind.RETURNED, -1))
            for attempt in self.attempts
            for fact in self.of(attempt, kind)
            if self.takes_back_credit(fact, attempt)
        ]
        return max(0, sum(moved))

    def with_attempt(self, attempt_id: uuid.UUID, status: AttemptStatus) -> "PaymentState":
        return replace(
            self,
            attempts=tuple(
                replace(one, status=status.value) if one.id == attempt_id else one for one in self.attempts
            ),
        )

    def with_facts(self, *facts: FactRow) -> "PaymentState":
        """Copy the state with facts added, or replaced where their identity is stored."""
        changed = {fact.identity: fact for fact in facts}
        stored = [changed.pop(fact.identity, fact) for fact in self.facts]
        return replace(self, facts=(*stored, *changed.values()))

    def with_refunds(self, refunds: Iterable[RefundRow]) -> "PaymentState":
        changed = {refund.id: refund for refund in refunds}
        return replace(self, refunds=tuple(changed.get(refund.id, refund) for refund in self.refunds))


def as_id(number: str) -> uuid.UUID | None:
    """Read our own 32-character number as the key it stands for; None for anybody else's."""
    try:
        return uuid.UUID(hex=number) if len(number) == 32 else None
    except ValueError:
        return None
