"""What every payment channel speaks towards the rest of the project: bytes and config in, frozen facts out.

No Django here and no state: a provider object holds its keys and one pooled HTTP client. Amounts are integers
in the currency's minor unit (fen). Every method that calls out may raise `ProviderRejected`,
`ProviderUnavailable` or `OutcomeUnknown` (see `payments.errors`); none retries by itself, because only the
caller knows whether a transaction is open and which number was promised. Only a word about the command itself
ends it: a failed question about it is `OutcomeUnknown`, and so is an answer about anything else
(`payments.providers.answers`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Protocol

from payments.providers.documents import is_keepable


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
        channel: ``wechat``, ``alipay`` or ``stripe``.
        merchant: the account the money went to (WeChat mchid, Alipay seller_id, Stripe account), as the provider
            states it.
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
        is_whole: for `REFUNDED`, all that was paid has gone back: `amount_minor` is the sum of all refunds, and
            our own `out_trade_no` its number.
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


class PayMethod(StrEnum):
    """By which of a channel's ways the shopper pays; `Provider.methods` tells which ones a channel has."""

    NATIVE = "native"  # WeChat: a QR code on our page
    H5 = "h5"  # WeChat: a phone's browser changes over to the wallet
    JSAPI = "jsapi"  # WeChat: a page inside the wallet
    PAGE = "page"  # Alipay: its own page
    PRECREATE = "precreate"  # Alipay: a QR code on our page
    INTENT = "intent"  # Stripe: a PaymentIntent, confirmed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """What some methods must know of the shopper.

    Attributes:
        openid: WeChat's id of the shopper for our app (`PayMethod.JSAPI`).
        client_ip: the address of the shopper's device (`PayMethod.H5`).
    """

    openid: str = field(default="", repr=False)
    client_ip: str = field(default="", repr=False)


NOBODY = Payer()

NEEDED: Mapping[PayMethod, str] = {PayMethod.JSAPI: "openid", PayMethod.H5: "client_ip"}  # the field of `Payer`


class NextActionType(StrEnum):
    """What the shopper's page does next."""

    QR_CODE = "qr_code"  # draw `NextAction.url`
    REDIRECT = "redirect"  # send the browser to `NextAction.url`
    JSAPI = "jsapi"  # hand `NextAction.params` to the wallet's script


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """How the shopper goes on.

    Attributes:
        url: to draw or to go to; empty for `JSAPI`.
        params: for `JSAPI`, the signed arguments of the wallet's script.
        reference: the provider's own number of what was opened, where it needs it to be asked (Stripe).
        lives: how long `url` and `params` can be used; None where that is as long as the trade can be paid.
    """

    type: NextActionType
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    lives: timedelta | None = None


class TradeStatus(StrEnum):
    """A trade at the provider, as a query tells it."""

    NOT_FOUND = "not_found"  # the provider never heard of the number, or (Alipay) the shopper did not scan yet
    PENDING = "pending"
    PAID = "paid"  # refunded later or not
    CLOSED = "closed"  # closed unpaid


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """The answer of a query: a status for the caller's next step and the facts to fold.

    `may_yet_begin`: the provider had not heard of what is closed, and a link or code that was given out makes it
    anew; so it may be paid until its time is over.
    """

    status: TradeStatus
    facts: tuple[Fact, ...] = ()
    may_yet_begin: bool = False


class RefundStatus(StrEnum):
    """A refund at the provider."""

    NOT_FOUND = "not_found"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # closed: no money moved, a person must look
    UNFUNDED = "unfunded"  # our account has too little; to be asked for again, same number, once it has more
    STUCK = "stuck"  # it left our account and did not reach the payer; a person sends it on at the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundResult:
    """The answer to a refund or a refund query; `facts` is empty until money has moved.

    `message` is the provider's word for what a person must look at; only `Notice.refund` sets `out_refund_no`.
    """

    status: RefundStatus
    facts: tuple[Fact, ...] = ()
    message: str = ""
    out_refund_no: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A genuine notification: verified, decrypted, read.

    Attributes:
        notification_id: the provider's id of this notification; all its copies carry the same.
        event_type: the provider's own word, such as ``TRANSACTION.SUCCESS`` or ``TRADE_SUCCESS``.
        facts: what it tells; empty for an event that moves no money.
        refund: what became of one that is `STUCK`, or has `FAILED`, perhaps after it had succeeded; else None.

    Raises:
        ValueError: id or type could not be kept, so nobody could be shown that it came.
    """

    notification_id: str
    event_type: str
    facts: tuple[Fact, ...]
    refund: RefundResult | None = None

    def __post_init__(self) -> None:
        if not (is_keepable(self.notification_id, most=128) and is_keepable(self.event_type, most=64)):
            raise ValueError("its id or type is no text, or too long")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of a provider's daily bill: money that moved that day, as the provider counts it.

    Attributes:
        kind: `FactKind.PAID` or `FactKind.REFUNDED`.
        out_trade_no: our number of the trade.
        provider_txn_id: as in `Fact` of that kind.
        out_refund_no: our number of the refund; empty for `PAID`.
        amount_minor: above zero for both kinds.
        occurred_at: the provider's time, aware; None where the bill gives none.
        refund_status: of a refund, where it stands as far as the bill tells; only a `SUCCEEDED` one is a fact.
        paid_txn_id: of a refund, the provider's number of its charge, where a number of ours may be charged again
            (`Provider.charges_again`); else empty.
        takes_back: of money that came back from a refund, for `PAID`, the provider's number of that refund; else
            empty.
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


class Provider(Protocol):
    """One configured merchant account of one channel. Thread-safe.

    `reference` is what `create` gave as `NextAction.reference`, empty where that is not known; a channel that is
    asked by our number alone ignores it.
    """

    channel: str
    merchant: str
    methods: tuple[PayMethod, ...]  # the first is the one that is used where none is asked for
    currencies: frozenset[str]  # in which it can be paid
    zone: tzinfo  # in which its days begin
    charges_again: bool  # whether a number of ours may be charged more than once, each charge under its own number

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
        method: PayMethod | None = None,
        payer: Payer = NOBODY,
    ) -> NextAction:
        """Open the trade `out_trade_no`. Calling again with equal arguments is safe and opens nothing new.

        Raises:
            ValueError: not one of `methods`, or `payer` lacks what the method needs.
        """
        ...

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """What the provider knows of `out_trade_no`; a number it never heard of is `NOT_FOUND`, no error."""
        ...

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Close it unpaid. The answer is `CLOSED` (with its fact), or `PAID` if the shopper was faster.

        A number the provider never heard of counts as closed: `create` is not called again. Where the shopper can
        begin it nevertheless, the answer says so.
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
        reference: str = "",
    ) -> RefundResult:
        """Give back `amount_minor` of `paid_minor`. The same `out_refund_no` again moves nothing twice."""
        ...

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        """What became of `out_refund_no`."""
        ...

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        """Everything that moved on `day`, in the provider's `zone`; empty for a day on which nothing did.

        Raises:
            ProviderError: the bill is not there (yet), or what came is not the bill that was announced.
        """
        ...

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """Verify and read a callback. No outbound call, whatever the bytes say.

        Args:
            headers: header names in any case.
            body: the raw bytes as received.
            now: when it came, aware; stale and future time stamps and the sender's certificate are judged by it.

        Raises:
            SignatureInvalid: not the provider's, stale, or a key that we don't hold.
            NotificationMalformed: cannot be decoded.
        """
        ...
