"""A payment provider in the test's process that does what the test scripts.

It stands in for the other company, not for any part of this project; the wire protocols have tests of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from payments.errors import ProviderRejected
from payments.money import EXPONENTS
from payments.providers.actions import NextAction, NextActionType, PayMethod
from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus, Trade, TradeStatus


@dataclass
class Opened:
    """A trade as the provider knows it."""

    amount_minor: int
    currency: str
    status: TradeStatus = TradeStatus.PENDING


@dataclass
class ScriptedProvider:
    """Provider that fails where a test says so; `before_close` runs first in a close."""

    channel: str
    merchant: str = "1900000001"
    methods: tuple[str, ...] = tuple(PayMethod)
    currencies: frozenset[str] = frozenset(EXPONENTS)
    trades: dict[str, Opened] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    failing: frozenset[str] = frozenset()
    failure: Exception | None = None
    before_close: Callable[[str], None] | None = None
    refund_result: RefundResult = field(default_factory=lambda: RefundResult(status=RefundStatus.PROCESSING))

    def fails(self, failure: Exception, *methods: str) -> None:
        """Raise `failure` from these methods, until it `works` again."""
        self.failing, self.failure = frozenset(methods), failure

    def works(self) -> None:
        self.failing = frozenset()

    def _begin(self, method: str, out_trade_no: str) -> None:
        self.calls.append((method, out_trade_no))
        if method in self.failing and self.failure is not None:
            raise self.failure

    def fact(self, kind: FactKind, out_trade_no: str) -> Fact:
        """What the provider would say about the trade."""
        trade = self.trades.get(out_trade_no)
        amount_minor = trade.amount_minor if trade and kind is not FactKind.CLOSED else 0
        return Fact(
            kind=kind,
            channel=self.channel,
            merchant=self.merchant,
            out_trade_no=out_trade_no,
            provider_txn_id=out_trade_no if kind is FactKind.CLOSED else f"txn-{kind}-{out_trade_no}",
            amount_minor=amount_minor,
            currency=trade.currency if trade else "CNY",
            paid_minor=amount_minor if kind is FactKind.REFUNDED else None,
            paid_txn_id=f"txn-paid-{out_trade_no}" if kind is FactKind.REFUNDED else "",
        )

    def pay(self, out_trade_no: str) -> Fact:
        """The shopper pays, unless it is closed; the fact that a callback would carry."""
        trade = self.trades[out_trade_no]
        assert trade.status is not TradeStatus.CLOSED
        trade.status = TradeStatus.PAID
        return self.fact(FactKind.PAID, out_trade_no)

    def create(
        self, *, out_trade_no: str, amount_minor: int, currency: str, method: str | None = None, **_: Any
    ) -> NextAction:
        self._begin("create", out_trade_no)
        opened = self.trades.setdefault(out_trade_no, Opened(amount_minor, currency))
        if opened.status is TradeStatus.PAID:
            raise ProviderRejected("ORDERPAID", "the order is paid")
        if method == PayMethod.H5:
            url, lives = f"https://wechat.invalid/checkmweb?n={out_trade_no}", timedelta(minutes=5)
            return NextAction(type=NextActionType.REDIRECT, url=url, lives=lives)
        if self.channel == "wechat":
            url, lives = "weixin://wxpay/bizpayurl?pr=p4lpSuKzz", timedelta(hours=2)
            return NextAction(type=NextActionType.QR_CODE, url=url, lives=lives)
        return NextAction(type=NextActionType.REDIRECT, url=f"https://alipay.invalid/gateway.do?n={out_trade_no}")

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._begin("query", out_trade_no)
        return self._said(out_trade_no)

    def _said(self, out_trade_no: str) -> Trade:
        trade = self.trades.get(out_trade_no)
        if trade is None:
            return Trade(status=TradeStatus.NOT_FOUND)
        kinds = {TradeStatus.PAID: FactKind.PAID, TradeStatus.CLOSED: FactKind.CLOSED}
        kind = kinds.get(trade.status)
        return Trade(status=trade.status, facts=(self.fact(kind, out_trade_no),) if kind else ())

    def approve(self, out_trade_no: str) -> None:
        """The shopper approves; nothing moves before a capture."""
        self.trades[out_trade_no].status = TradeStatus.APPROVED

    def capture(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._begin("capture", out_trade_no)
        if self.trades[out_trade_no].status is TradeStatus.APPROVED:
            self.pay(out_trade_no)
        return self._said(out_trade_no)

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._begin("close", out_trade_no)
        if self.before_close:
            self.before_close(out_trade_no)
        trade = self.trades.get(out_trade_no)
        if trade and trade.status is TradeStatus.PAID:
            return Trade(status=TradeStatus.PAID, facts=(self.fact(FactKind.PAID, out_trade_no),))
        if trade:
            trade.status = TradeStatus.CLOSED
        return Trade(status=TradeStatus.CLOSED, facts=(self.fact(FactKind.CLOSED, out_trade_no),))

    def refund(self, *, out_trade_no: str, **_: Any) -> RefundResult:
        self._begin("refund", out_trade_no)
        return self.refund_result

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        self._begin("query_refund", out_trade_no)
        return self.refund_result
