"""Facts from Alipay's documents, whose yuan with two places become integers in fen.

Source: Alipay open platform, "alipay.trade.query", "alipay.trade.refund" and "asynchronous notification" (read
2026-11).
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from payments import money
from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus, Trade, TradeStatus, closed_fact
from payments.providers.documents import china_time, text_of

CHANNEL = "alipay"
CURRENCY = "CNY"
ended_fact = partial(closed_fact, channel=CHANNEL)
PAID_STATES = frozenset({"TRADE_SUCCESS", "TRADE_FINISHED"})


def trade_of(answer: Mapping[str, Any], *, out_trade_no: str, seller_id: str) -> Trade:
    """Read a query's answer. Closed after money came means refunded in full, hence paid."""
    state = answer["trade_status"]
    if state in PAID_STATES or (state == "TRADE_CLOSED" and answer.get("send_pay_date")):
        payment = paid_fact(answer, seller_id=seller_id)
        back = (_whole_back(payment, None),) if state == "TRADE_CLOSED" else ()
        return Trade(status=TradeStatus.PAID, facts=(payment, *back))
    if state == "TRADE_CLOSED":
        return Trade(status=TradeStatus.CLOSED, facts=(ended_fact(out_trade_no=out_trade_no, merchant=seller_id),))
    return Trade(status=TradeStatus.PENDING)


def notified_facts(given: Mapping[str, str], *, seller_id: str) -> tuple[Fact, ...]:
    """Read a notification: a part refunded is TRADE_SUCCESS again, all of it TRADE_CLOSED.

    `refund_fee` is the sum of all refunds so far. So a partial refund's amount comes from its query (our timer
    asks for every open refund) or the bill; only a full one follows from the sum.
    """
    refunded = given.get("gmt_refund") or _back_minor(given)
    paid = given["trade_status"] in PAID_STATES or (given["trade_status"] == "TRADE_CLOSED" and refunded)
    if paid:
        payment = paid_fact(given, seller_id=seller_id)
        return (payment, *_all_back(given, payment))
    if given["trade_status"] == "TRADE_CLOSED":
        return (ended_fact(out_trade_no=text_of(given, "out_trade_no"), merchant=seller_id),)
    return ()


def paid_fact(trade: Mapping[str, Any], *, seller_id: str) -> Fact:
    """Read a payment of a notification, or of a query's answer, which names no seller: ours."""
    when = trade.get("gmt_payment") or trade.get("send_pay_date")
    return Fact(
        kind=FactKind.PAID,
        channel=CHANNEL,
        merchant=str(trade.get("seller_id") or seller_id),
        out_trade_no=text_of(trade, "out_trade_no"),
        provider_txn_id=text_of(trade, "trade_no"),
        amount_minor=money.from_decimal(text_of(trade, "total_amount"), CURRENCY),
        currency=CURRENCY,
        occurred_at=china_time(when) if when else None,
    )


def refund_of(answer: Mapping[str, Any], out_trade_no: str, out_refund_no: str, *, seller_id: str) -> RefundResult:
    """Read the answer of a refund's query, silent about a number that moved nothing."""
    if answer.get("refund_status") != "REFUND_SUCCESS":
        return RefundResult(status=RefundStatus.NOT_FOUND)
    fact = refunded_fact(
        answer,
        seller_id=seller_id,
        out_trade_no=out_trade_no,
        out_refund_no=out_refund_no,
        amount_minor=money.from_decimal(answer["refund_amount"], CURRENCY),
        paid_minor=money.from_decimal(answer["total_amount"], CURRENCY),
    )
    return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))


def refunded_fact(
    answer: Mapping[str, Any],
    *,
    seller_id: str,
    out_trade_no: str,
    out_refund_no: str,
    amount_minor: int,
    paid_minor: int,
) -> Fact:
    """Build the fact of a refund, identified by our number: Alipay has none of its own."""
    when = answer.get("gmt_refund_pay")
    return Fact(
        kind=FactKind.REFUNDED,
        channel=CHANNEL,
        merchant=seller_id,
        out_trade_no=out_trade_no,
        provider_txn_id=out_refund_no,
        amount_minor=amount_minor,
        currency=CURRENCY,
        occurred_at=china_time(when) if when else None,
        out_refund_no=out_refund_no,
        paid_txn_id=str(answer.get("trade_no", "")),
        paid_minor=paid_minor,
    )


def _all_back(given: Mapping[str, str], payment: Fact) -> tuple[Fact, ...]:
    if given["trade_status"] != "TRADE_CLOSED" or _back_minor(given) != payment.amount_minor:
        return ()
    when = given.get("gmt_refund", "").partition(".")[0]  # it has fractions of a second
    return (_whole_back(payment, china_time(when) if when else None),)


def _whole_back(payment: Fact, occurred_at: datetime | None) -> Fact:
    return replace(
        payment,
        kind=FactKind.REFUNDED,
        provider_txn_id=payment.out_trade_no,
        occurred_at=occurred_at,
        paid_txn_id=payment.provider_txn_id,
        is_whole=True,
    )


def _back_minor(given: Mapping[str, str]) -> int:
    return money.from_decimal(given.get("refund_fee") or "0", CURRENCY)
