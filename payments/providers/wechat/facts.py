"""Facts from WeChat Pay's documents. Pure.

Every function raises KeyError, TypeError, AttributeError or ValueError for a document of another shape. Source:
WeChat Pay API v3, "query order", "refund", "payment and refund notification" (read 2026-11).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus
from payments.providers.documents import amount_of, in_utc, text_of

PAID_STATES = frozenset({"SUCCESS", "REFUND"})  # refunded, hence paid before


def facts_of(event_type: str, content: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Read a genuine notification; no facts where its content denies the event."""
    if event_type == "TRANSACTION.SUCCESS" and content.get("trade_state", "SUCCESS") in PAID_STATES:
        return (paid_fact(content),)
    if event_type == "REFUND.SUCCESS" and content.get("refund_status", "SUCCESS") == "SUCCESS":
        return (refunded_fact(content, merchant=text_of(content, "mchid")),)
    return ()


def refund_news(event_type: str, content: Mapping[str, Any]) -> RefundResult | None:
    """Report a refund that did not reach the payer's account; a person sends it on."""
    if event_type != "REFUND.ABNORMAL":
        return None
    number = text_of(content, "out_refund_no")
    return RefundResult(status=RefundStatus.STUCK, message="ABNORMAL", out_refund_no=number)


def about(document: Mapping[str, Any]) -> dict[str, object]:
    """Collect the members of an answer that `payments.providers.answers.must_match` compares."""
    amount = document.get("amount")
    given = amount if isinstance(amount, Mapping) else {}
    return {
        "out_trade_no": document.get("out_trade_no"),
        "out_refund_no": document.get("out_refund_no"),
        "amount_minor": given.get("refund"),
        "paid_minor": given.get("total"),
        "currency": given.get("currency") or "CNY",
    }


def paid_fact(trade: Mapping[str, Any]) -> Fact:
    """Read a payment. `amount.total` is the price; coupons make `payer_total` less."""
    merchant, number = text_of(trade, "mchid"), text_of(trade, "transaction_id")
    return _fact(FactKind.PAID, trade, "total", merchant=merchant, provider_txn_id=number)


def refunded_fact(refund: Mapping[str, Any], *, merchant: str) -> Fact:
    return _fact(
        FactKind.REFUNDED,
        refund,
        "refund",
        merchant=merchant,
        provider_txn_id=text_of(refund, "refund_id"),
        out_refund_no=text_of(refund, "out_refund_no"),
        paid_txn_id=text_of(refund, "transaction_id"),
        paid_minor=amount_of(refund["amount"], "total"),
    )


def _fact(kind: FactKind, document: Mapping[str, Any], amount: str, **members: Any) -> Fact:
    when = document.get("success_time")
    return Fact(
        kind=kind,
        channel="wechat",
        out_trade_no=text_of(document, "out_trade_no"),
        amount_minor=amount_of(document["amount"], amount),
        currency=str(document["amount"].get("currency") or "CNY"),  # an optional member
        occurred_at=in_utc(datetime.fromisoformat(when)) if isinstance(when, str) and when else None,
        **members,
    )
