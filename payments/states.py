"""States of payments, attempts and refunds, with tables of allowed steps. Pure.

The models' guards refuse every other step, from any writer; a test compares all pairs.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any


class PaymentStatus(StrEnum):
    """Status of an order's payment, derived from facts by `derive_status`."""

    PENDING = "pending"
    UNCERTAIN = "uncertain"  # a call to a provider went out and its outcome is not known
    SUCCEEDED = "succeeded"
    CLOSED = "closed"  # every attempt ended and nothing was credited
    PARTIALLY_REFUNDED = "partially_refunded"
    REFUNDED = "refunded"


class OfAccount:
    """Row of a merchant account, which it names where that is not named like its channel."""

    __slots__ = ()
    channel: Any
    account_key: Any

    @property
    def account(self) -> str:
        """Name of the account in ``PROVIDERS``: an attempt's own, a notification's by address."""
        name: str = self.account_key or self.channel
        return name


class AttemptStatus(StrEnum):
    """Status of one trade at one provider."""

    CREATED = "created"  # our number is committed; the provider may not have heard of it
    PENDING = "pending"  # open at the provider, the shopper can pay
    UNCERTAIN = "uncertain"
    SUCCEEDED = "succeeded"
    CLOSED = "closed"
    FAILED = "failed"  # the provider refused to open it


class RefundStatus(StrEnum):
    """Status of one refund."""

    REQUESTED = "requested"  # our number is committed; the provider has not heard of it, or waits for our money
    PROCESSING = "processing"
    UNCERTAIN = "uncertain"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # no money moved; a person must look


class AnomalyKind(StrEnum):
    """Reason for a person to look at something about money."""

    UNKNOWN_TRADE = "unknown_trade"
    AMOUNT_MISMATCH = "amount_mismatch"
    MERCHANT_MISMATCH = "merchant_mismatch"
    PAID_AFTER_CLOSE = "paid_after_close"
    PAID_TWICE = "paid_twice"
    CONTENT_CHANGED = "content_changed"
    REFUND_EXCEEDS_PAID = "refund_exceeds_paid"
    REFUND_FAILED = "refund_failed"
    NOTIFICATION_FAILED = "notification_failed"
    DISPUTED = "disputed"


# kinds whose money we hold and refund by policy; the others wait for a person
REFUNDED_BY_POLICY = frozenset({AnomalyKind.AMOUNT_MISMATCH, AnomalyKind.PAID_AFTER_CLOSE, AnomalyKind.PAID_TWICE})

LIVE_ATTEMPTS = frozenset({AttemptStatus.CREATED, AttemptStatus.PENDING, AttemptStatus.UNCERTAIN})
OPEN_REFUNDS = frozenset({RefundStatus.REQUESTED, RefundStatus.PROCESSING, RefundStatus.UNCERTAIN})

# an attempt that was paid but not credited (too late, twice, another amount) is over as much as a closed one
_ENDED = frozenset({AttemptStatus.CLOSED, AttemptStatus.SUCCEEDED})

_UNPAID = frozenset({PaymentStatus.PENDING, PaymentStatus.UNCERTAIN, PaymentStatus.CLOSED})
_PAID = frozenset({PaymentStatus.SUCCEEDED, PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED})

# types of events by the statuses that become one; in the others a payment only waits for a provider
EVENT_OF: Mapping[PaymentStatus, str] = {
    PaymentStatus.SUCCEEDED: "payment.paid",
    PaymentStatus.PARTIALLY_REFUNDED: "payment.partially_refunded",
    PaymentStatus.REFUNDED: "payment.refunded",
    PaymentStatus.CLOSED: "payment.closed",
}
ANOMALY_FILED = "anomaly.filed"

# money only ever moves forward: nothing paid becomes unpaid, nothing refunded becomes less refunded
NEXT: Mapping[PaymentStatus, frozenset[PaymentStatus]] = {
    PaymentStatus.PENDING: _UNPAID | _PAID,
    PaymentStatus.UNCERTAIN: _UNPAID | _PAID,
    PaymentStatus.CLOSED: _UNPAID | _PAID,
    PaymentStatus.SUCCEEDED: _PAID,
    PaymentStatus.PARTIALLY_REFUNDED: frozenset({PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED}),
    PaymentStatus.REFUNDED: frozenset({PaymentStatus.REFUNDED}),
}

# what the provider has opened is not taken for unopened again; what is over comes back only as paid
_OPENABLE = frozenset({AttemptStatus.PENDING, AttemptStatus.UNCERTAIN, AttemptStatus.FAILED})
ATTEMPT_NEXT: Mapping[AttemptStatus, frozenset[AttemptStatus]] = {
    AttemptStatus.CREATED: _OPENABLE | _ENDED,
    AttemptStatus.PENDING: _ENDED,
    AttemptStatus.UNCERTAIN: (_OPENABLE | _ENDED) - {AttemptStatus.UNCERTAIN},
    AttemptStatus.SUCCEEDED: frozenset(),
    AttemptStatus.CLOSED: frozenset({AttemptStatus.SUCCEEDED}),
    AttemptStatus.FAILED: _ENDED,
}

# the provider may say anything of an open one, in any order; of one that failed, only that it was made after all
_ANY = frozenset(RefundStatus)
REFUND_NEXT: Mapping[RefundStatus, frozenset[RefundStatus]] = {
    RefundStatus.REQUESTED: _ANY - {RefundStatus.REQUESTED},
    RefundStatus.PROCESSING: _ANY - {RefundStatus.PROCESSING},
    RefundStatus.UNCERTAIN: _ANY - {RefundStatus.UNCERTAIN},
    RefundStatus.SUCCEEDED: frozenset(),
    RefundStatus.FAILED: frozenset({RefundStatus.SUCCEEDED}),
}


def attempts_before(after: AttemptStatus) -> list[str]:
    """The statuses of an attempt from which a step leads to `after`."""
    return [before.value for before, afters in ATTEMPT_NEXT.items() if after in afters]


def derive_status(*, paid_minor: int, refunded_minor: int, attempts: Iterable[str]) -> PaymentStatus:
    """Return the status that totals and attempts add up to; nobody ever sets one."""
    if paid_minor:
        if not refunded_minor:
            return PaymentStatus.SUCCEEDED
        return PaymentStatus.PARTIALLY_REFUNDED if refunded_minor < paid_minor else PaymentStatus.REFUNDED
    known = set(attempts)
    if AttemptStatus.UNCERTAIN in known:
        return PaymentStatus.UNCERTAIN
    if known & LIVE_ATTEMPTS or not known & _ENDED:
        return PaymentStatus.PENDING
    return PaymentStatus.CLOSED


# in the detail of an anomaly about a refund that its provider reports as failed, which is final
FINAL = {"final": "yes"}

# in the detail of an anomaly whose refund an operator approves, or declines by resolving it
APPROVAL_NEEDED: Mapping[str, str] = {"approval": "needed"}


def needs_approval(detail: Mapping[str, object]) -> bool:
    """Return whether an anomaly waits for an operator to approve or decline its refund."""
    return APPROVAL_NEEDED.items() <= detail.items()
