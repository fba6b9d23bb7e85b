"""What every payment channel speaks towards the rest of the project: bytes and config in, frozen facts out.

No Django here and no state: a provider object holds its keys and one pooled HTTP client. Amounts are integers
in the currency's minor unit (fen). Every method that calls out may raise `ProviderRejected`,
`ProviderUnavailable` or `OutcomeUnknown` (see `payments.errors`); none retries by itself, because only the
caller knows whether a transaction is open and which number was promised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class FactKind(StrEnum):
    """The three things a provider can tell us about money."""

    PAID = "paid"
    REFUNDED = "refunded"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that is true at the provider, whoever told us and however often.

    `(channel, merchant, provider_txn_id, kind)` identifies it: two facts with equal identity are the same fact.

    Attributes:
        kind: what happened.
        channel: ``wechat`` or ``alipay``.
        merchant: the account the money went to (WeChat mchid, Alipay seller_id), as the provider states it.
        out_trade_no: our number for the attempt, 32 characters.
        provider_txn_id: the provider's number: of the payment (`PAID`), of the refund (`REFUNDED`; for
            channels that number no refunds, our `out_refund_no`), our own `out_trade_no` for `CLOSED`.
        amount_minor: what was paid or refunded by this one fact, in minor units; 0 for `CLOSED`.
        currency: ISO 4217, such as ``CNY``.
        occurred_at: the provider's time, aware; None where it gives none.
        out_refund_no: our number of the refund, for `REFUNDED`; else empty.
        paid_txn_id: for `REFUNDED`, the provider's number of the payment it takes from where known (a refund
            implies the payment), else empty.
        paid_minor: for `REFUNDED`, the payment's whole amount where the provider tells it, else None.
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


def closed_fact(*, channel: str, merchant: str, out_trade_no: str, currency: str = "CNY") -> Fact:
    """The fact that a trade ended unpaid; our own number identifies it, because no money of theirs has one."""
    return Fact(
        kind=FactKind.CLOSED,
        channel=channel,
        merchant=merchant,
        out_trade_no=out_trade_no,
        provider_txn_id=out_trade_no,
        amount_minor=0,
        currency=currency,
    )


class NextActionType(StrEnum):
    """What the shopper's page does with `NextAction.url`."""

    QR_CODE = "qr_code"
    REDIRECT = "redirect"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """How the shopper goes on: draw `url` as a QR code, or send the browser there."""

    type: NextActionType
    url: str


class TradeStatus(StrEnum):
    """A trade at the provider, as a query tells it."""

    NOT_FOUND = "not_found"  # the provider never heard of the number, or (Alipay) the shopper did not scan yet
    PENDING = "pending"
    PAID = "paid"  # refunded later or not
    CLOSED = "closed"  # closed unpaid


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """The answer of a query: a status for the caller's next step and the facts to fold."""

    status: TradeStatus
    facts: tuple[Fact, ...] = ()


class RefundStatus(StrEnum):
    """A refund at the provider."""

    NOT_FOUND = "not_found"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # closed or abnormal: no money moved, a person must look


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundResult:
    """The answer to a refund or a refund query; `facts` is empty until money has moved."""

    status: RefundStatus
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A genuine notification: verified, decrypted, read.

    Attributes:
        notification_id: the provider's id of this notification; all its copies carry the same.
        event_type: the provider's own word, such as ``TRANSACTION.SUCCESS`` or ``TRADE_SUCCESS``.
        facts: what it tells; empty for an event that moves no money (a status we do not act on).
    """

    notification_id: str
    event_type: str
    facts: tuple[Fact, ...]


class Provider(Protocol):
    """One configured merchant account of one channel. Thread-safe."""

    channel: str
    merchant: str

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
    ) -> NextAction:
        """Open the trade `out_trade_no`. Calling again with equal arguments is safe and opens nothing new."""
        ...

    def query(self, *, out_trade_no: str) -> Trade:
        """What the provider knows of `out_trade_no`; a number it never heard of is `NOT_FOUND`, no error."""
        ...

    def close(self, *, out_trade_no: str) -> Trade:
        """Close it unpaid. The answer is `CLOSED` (with its fact), or `PAID` if the shopper was faster.

        A number the provider never heard of counts as closed: it can never be paid once `create` is not
        called again.
        """
        ...

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
    ) -> RefundResult:
        """Give back `amount_minor` of `paid_minor`. The same `out_refund_no` again moves nothing twice."""
        ...

    def query_refund(self, *, out_trade_no: str, out_refund_no: str) -> RefundResult:
        """What became of `out_refund_no`."""
        ...

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """Verify and read a callback. No outbound call, whatever the bytes say.

        Args:
            headers: header names in any case.
            body: the raw bytes as received.
            now: aware; stale and future time stamps are judged by it.

        Raises:
            SignatureInvalid: not the provider's, stale, or a key that we don't hold.
            NotificationMalformed: cannot be decoded.
        """
        ...
