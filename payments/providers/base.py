"""Interface of every payment channel, and the frozen values that cross it.

A provider holds its keys and one pooled HTTP client. Amounts are integers in the currency's minor unit. Every
method that calls out may raise `ProviderRejected`, `ProviderUnavailable` or `OutcomeUnknown` (see
`payments.errors`). None retries: only the caller knows the open transaction and the promised number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from enum import StrEnum
from typing import Protocol, Self

from payments.providers.actions import NOBODY, NextAction, Payer
from payments.providers.disputes import Dispute
from payments.providers.documents import is_keepable


class FactKind(StrEnum):
    """Kinds of facts that a provider states about money."""

    PAID = "paid"
    REFUNDED = "refunded"
    CLOSED = "closed"
    DISPUTED = "disputed"  # what is stated of a dispute at one time; it moves nothing
    TAKEN = "taken"  # the provider took money back without us: a dispute, a chargeback, a reversal
    RETURNED = "returned"  # and gave it back to us


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Fact that is true at the provider, from whatever source and however often received.

    `(channel, merchant, provider_txn_id, kind)` identifies it.

    Attributes:
        channel: the plug-in's name.
        merchant: the account that the money went to, as the provider states it.
        out_trade_no: our number of the attempt, 32 characters; of a dispute, empty where `paid_txn_id` is known.
        provider_txn_id: the provider's number of the payment (`PAID`) or refund (`REFUNDED`; our `out_refund_no`
            where the channel numbers no refunds), our `out_trade_no` for `CLOSED`; the dispute's, or that of the
            movement where it names no dispute.
        amount_minor: paid, refunded, taken or returned by this fact alone; claimed (`DISPUTED`); 0 for `CLOSED`.
        currency: ISO 4217, such as ``CNY``.
        occurred_at: the provider's time, aware; None where it gives none; for `DISPUTED`, when it was stated.
        out_refund_no: our number of the refund, for `REFUNDED`; else empty.
        paid_txn_id: for `REFUNDED` and disputes, the provider's number of the payment it takes from, where known.
        paid_minor: for `REFUNDED`, the payment's whole amount where the provider states it, else None.
        is_whole: for `REFUNDED`, everything paid has gone back: `amount_minor` is the sum of all refunds,
            numbered by our `out_trade_no`.
        dispute: for `DISPUTED`.
    """

    kind: FactKind
    channel: str
    merchant: str
    out_trade_no: str
    provider_txn_id: str
    amount_minor: int
    currency: str
    occurred_at: datetime | None = None
    out_refund_no: str = ""
    paid_txn_id: str = ""
    paid_minor: int | None = None
    is_whole: bool = False
    dispute: Dispute | None = None


def closed_fact(*, channel: str, merchant: str, out_trade_no: str, currency: str = "CNY") -> Fact:
    """Build the fact that a trade ended unpaid, identified by our own number."""
    return Fact(
        kind=FactKind.CLOSED,
        channel=channel,
        merchant=merchant,
        out_trade_no=out_trade_no,
        provider_txn_id=out_trade_no,
        amount_minor=0,
        currency=currency,
    )


class TradeStatus(StrEnum):
    """Status of a trade at the provider."""

    NOT_FOUND = "not_found"  # the provider never saw the number; at some, the shopper has not scanned yet
    PENDING = "pending"
    APPROVED = "approved"  # by the shopper; no money moves before `Provider.capture`
    PAID = "paid"  # refunded later or not
    CLOSED = "closed"  # closed unpaid


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """Answer of a query: a status for the caller's next step, and the facts to settle.

    Attributes:
        may_yet_begin: the provider had never seen the closed trade, and the shopper still has a link or code that
            begins it; so it may be paid until it expires.
    """

    status: TradeStatus
    facts: tuple[Fact, ...] = ()
    may_yet_begin: bool = False


class RefundStatus(StrEnum):
    """Status of a refund at the provider."""

    NOT_FOUND = "not_found"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # closed: no money moved, a person must look
    UNFUNDED = "unfunded"  # our account has too little; to be asked for again, same number, once it has more
    STUCK = "stuck"  # it left our account and did not reach the payer; a person sends it on at the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundResult:
    """Answer to a refund or its query; `facts` is empty until money has moved.

    Attributes:
        message: the provider's reason, where a person must look.
        out_refund_no: our number of the refund; read of `Notice.refund` only.
    """

    status: RefundStatus
    facts: tuple[Fact, ...] = ()
    message: str = ""
    out_refund_no: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Genuine notification: verified, decrypted, read.

    Attributes:
        notification_id: the provider's id; all copies carry the same.
        event_type: the provider's own word, such as ``TRANSACTION.SUCCESS``.
        facts: empty for an event that moves no money.
        refund: set for one that is `STUCK` or has `FAILED`, perhaps after it had succeeded.
        out_trade_no: our number of a trade that its shopper has approved, so that the timer captures it at once.

    Raises:
        ValueError: id or type does not fit its column, so no operator could be shown it.
    """

    notification_id: str
    event_type: str
    facts: tuple[Fact, ...]
    refund: RefundResult | None = None
    out_trade_no: str = ""

    def __post_init__(self) -> None:
        if not (is_keepable(self.notification_id, most=128) and is_keepable(self.event_type, most=64)):
            raise ValueError("its id or type is no text, or too long")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """Line of a provider's daily bill: money that moved that day, as the provider counts it.

    Attributes:
        kind: any that moves money.
        out_trade_no: our number of the trade.
        provider_txn_id: as in `Fact` of that kind.
        out_refund_no: our number of the refund; empty for `PAID`.
        amount_minor: above zero.
        occurred_at: the provider's time, aware; None where the bill gives none.
        refund_status: of a refund, as far as the bill shows; only a `SUCCEEDED` one is a fact.
        paid_txn_id: of a refund, the provider's number of its charge, where one number of ours may be charged
            again (`Plugin.charges_again`); of a dispute, as in `Fact`; else empty.
        takes_back: for `PAID` money back from a refund, the provider's number of that refund; else empty.
    """

    kind: FactKind
    out_trade_no: str
    provider_txn_id: str
    out_refund_no: str
    amount_minor: int
    currency: str
    occurred_at: datetime | None
    refund_status: RefundStatus = RefundStatus.SUCCEEDED
    paid_txn_id: str = ""
    takes_back: str = ""

    @classmethod
    def of(cls, fact: Fact) -> Self:
        """Build the line of a payment or refund, for a bill that states what notifications do."""
        return cls(
            kind=fact.kind,
            out_trade_no=fact.out_trade_no,
            provider_txn_id=fact.provider_txn_id,
            out_refund_no=fact.out_refund_no,
            amount_minor=fact.amount_minor,
            currency=fact.currency,
            occurred_at=fact.occurred_at,
        )


class Provider(Protocol):
    """Configured merchant account of one channel. Thread-safe.

    Our numbers, `out_trade_no` and `out_refund_no`, are the 32 lower-case hexadecimal digits of a UUID, made
    before the call. `Account.number` writes them in another form. A provider that takes less than their 122 bits,
    as 20 characters are, gets ours in a field that it returns, such as metadata; its number is the `reference`.

    `reference` is `NextAction.reference` of `create`, empty where unknown; a channel that knows our number
    ignores it.
    """

    channel: str
    merchant: str
    currencies: frozenset[str]  # in which it can be paid

    @property
    def zone(self) -> tzinfo:
        """Zone in which its days begin."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Ways to pay; the first is the one that is used where none is asked for."""

    def create(
        self,
        *,
        out_trade_no: str,
        amount_minor: int,
        currency: str,
        description: str,
        notify_url: str,
        return_url: str,
        expires_at: datetime,
        method: str | None = None,
        payer: Payer = NOBODY,
    ) -> NextAction:
        """Open the trade `out_trade_no`. Again with equal arguments, nothing new is opened.

        Raises:
            ValueError: not one of `methods`, or `payer` lacks what the method needs.
        """

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Ask about `out_trade_no`, and move nothing; an unknown number is `NOT_FOUND`, no error."""

    def capture(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Take the money of an `APPROVED` trade, once however often called; leave any other.

        Called for a channel alone whose `query` says `APPROVED`; still so is a trade that the provider refused.
        """

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Close the trade unpaid: `CLOSED` with its fact, or `PAID` if the shopper was faster.

        Of a trade that is `APPROVED` this is the void, and the only one (`Capability.VOID`): what the shopper has
        approved is let go, and `capture` leaves it closed.

        A number that the provider never saw counts as closed: `create` is not called again. `Trade.may_yet_begin`
        is set where the shopper can begin it nevertheless.
        """

    def refund(
        self,
        *,
        out_trade_no: str,
        out_refund_no: str,
        amount_minor: int,
        paid_minor: int,
        currency: str,
        reason: str,
        notify_url: str,
        reference: str = "",
    ) -> RefundResult:
        """Give back `amount_minor` of `paid_minor`; the same `out_refund_no` moves nothing twice."""

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        """Ask about the refund `out_refund_no`."""

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        """Fetch everything that moved on `day`, in the provider's `zone`; empty where nothing did.

        Raises:
            ProviderError: the bill is not there (yet), or is not the one that was announced.
        """

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """Verify and read a callback. No outbound call, whatever the bytes say.

        Args:
            headers: header names in any case.
            body: the raw bytes as received.
            now: time of arrival, aware; time stamps and certificates are judged by it.

        Raises:
            SignatureInvalid: not the provider's, stale, or by a key that we don't hold.
            NotificationMalformed: cannot be decoded.
        """
