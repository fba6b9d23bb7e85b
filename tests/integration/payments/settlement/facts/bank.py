"""A provider inside the test's process: the other company, as obedient or as broken as a test wants it."""

import threading
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

from payments.money import EXPONENTS
from payments.providers.base import (
    NOBODY,
    BillLine,
    Fact,
    FactKind,
    NextAction,
    NextActionType,
    Notice,
    Payer,
    PayMethod,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)

MERCHANT = "1900000001"


def paid(number: str, *, channel: str = "wechat", amount_minor: int = 1990, **changed: Any) -> Fact:
    """The payment of the trade `number`."""
    given = {"merchant": MERCHANT, "provider_txn_id": f"t{number}", "currency": "CNY", **changed}
    return Fact(kind=FactKind.PAID, channel=channel, out_trade_no=number, amount_minor=amount_minor, **given)


def refunded(
    number: str,
    refund_number: str,
    *,
    amount_minor: int,
    channel: str = "wechat",
    implies: bool = True,
    **changed: Any,
) -> Fact:
    """A refund of the trade; with `implies` it names the payment that it takes from, as WeChat's do."""
    given: dict[str, Any] = {"merchant": MERCHANT, "currency": "CNY", **changed}
    if implies:
        given |= {"paid_txn_id": f"t{number}", "paid_minor": 1990}
    return Fact(
        kind=FactKind.REFUNDED,
        channel=channel,
        out_trade_no=number,
        provider_txn_id=f"r{refund_number}",
        out_refund_no=refund_number,
        amount_minor=amount_minor,
        **given,
    )


def closed(number: str, *, channel: str = "wechat", merchant: str = MERCHANT) -> Fact:
    """The trade was closed unpaid."""
    return Fact(
        kind=FactKind.CLOSED,
        channel=channel,
        merchant=merchant,
        out_trade_no=number,
        provider_txn_id=number,
        amount_minor=0,
        currency="CNY",
    )


class Bank:
    """Remembers trades and refunds by our numbers.

    `failures[method]` is raised before the method does anything, `late_failures[method]` after it has done it:
    a time-out whose request arrived. `during[method]` runs in the middle of a call.
    """

    merchant = MERCHANT
    methods = tuple(PayMethod)
    currencies = frozenset(EXPONENTS)

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.trades: dict[str, TradeStatus] = {}
        self.refunds: dict[str, tuple[str, int]] = {}
        self.refund_status = RefundStatus.SUCCEEDED
        self.calls: list[str] = []
        self.failures: dict[str, Exception] = {}
        self.late_failures: dict[str, Exception] = {}
        self.during: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()

    def _enter(self, method: str) -> None:
        self.calls.append(method)
        if method in self.failures:
            raise self.failures[method]

    def _leave(self, method: str) -> None:
        if method in self.during:
            self.during.pop(method)()
        if method in self.late_failures:
            raise self.late_failures.pop(method)

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
        self._enter("create")
        self.trades.setdefault(out_trade_no, TradeStatus.PENDING)
        self._leave("create")
        return NextAction(type=NextActionType.QR_CODE, url=f"weixin://wxpay/bizpayurl?pr={out_trade_no[:8]}")

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._enter("query")
        trade = self._trade(out_trade_no)
        self._leave("query")
        return trade

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._enter("close")
        if self.trades.get(out_trade_no) is not TradeStatus.PAID:
            self.trades[out_trade_no] = TradeStatus.CLOSED
        self._leave("close")
        return self._trade(out_trade_no)

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
        self._enter("refund")
        with self._lock:
            self.refunds.setdefault(out_refund_no, (out_trade_no, amount_minor))
        self._leave("refund")
        return self._refund(out_refund_no)

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        self._enter("query_refund")
        if out_refund_no not in self.refunds:
            return RefundResult(status=RefundStatus.NOT_FOUND)
        return self._refund(out_refund_no)

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        raise NotImplementedError("bills are tested with the real providers")

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        raise NotImplementedError("notifications are tested with the real providers")

    def _trade(self, number: str) -> Trade:
        status = self.trades.get(number, TradeStatus.NOT_FOUND)
        facts: dict[TradeStatus, tuple[Fact, ...]] = {
            TradeStatus.PAID: (paid(number, channel=self.channel),),
            TradeStatus.CLOSED: (closed(number, channel=self.channel),),
        }
        return Trade(status=status, facts=facts.get(status, ()))

    def _refund(self, refund_number: str) -> RefundResult:
        number, amount_minor = self.refunds[refund_number]
        if self.refund_status is not RefundStatus.SUCCEEDED:
            return RefundResult(status=self.refund_status)
        fact = refunded(number, refund_number, amount_minor=amount_minor, channel=self.channel, implies=False)
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))
