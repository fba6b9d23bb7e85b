"""Stripe's daily bill: the account's balance transactions. Pure, but for the list given.

Source: Stripe API reference, "Balance transaction", "Balance transaction types" (read 2026-11).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

from payments.providers.base import BillLine, FactKind, RefundStatus
from payments.providers.documents import amount_of, text_of
from payments.providers.stripe.facts import (
    currency_of,
    disputed_money,
    number_of,
    refund_number_of,
    refund_status_of,
    time_of,
)
from payments.providers.stripe.lookup import listed

PAGES_MAX = 1000
REFUND_FAILURE = "refund_failure"  # takes a refund back
ADJUSTMENT = "adjustment"  # of the balance; those with a dispute as their source count

_TYPES = {
    "charge": FactKind.PAID,
    "payment": FactKind.PAID,
    "refund": FactKind.REFUNDED,
    "payment_refund": FactKind.REFUNDED,
    REFUND_FAILURE: FactKind.PAID,
    ADJUSTMENT: FactKind.TAKEN,
}


def bill_lines(ask: Callable[..., Any], *, day: date, zone: tzinfo) -> Iterator[BillLine]:
    """Yield the lines of `day`; `ask` lists balance transactions."""
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    window = {"gte": int(start.timestamp()), "lt": int((start + timedelta(days=1)).timestamp())}
    for name in _TYPES:
        wanted = {"type": name, "created": window, "expand": ["data.source.payment_intent"]}
        for entry in listed(ask, wanted, most_pages=PAGES_MAX):
            if name != ADJUSTMENT or (entry["source"] or {}).get("object") == "dispute":
                yield bill_line(entry)


def bill_line(entry: Mapping[str, Any]) -> BillLine:
    """Build a line from a balance transaction with its source and that one's intent expanded.

    The amount is the source's, in the charged currency; the balance may have another. Money without a number of
    ours has an empty `out_trade_no`; so has money that came back from a refund, which pays nothing and goes by
    its own number. A refund gets its line when it is made and keeps it even if it fails.
    """
    source, kind = entry["source"], _TYPES[entry["type"]]
    if entry["type"] == ADJUSTMENT:
        moved = disputed_money(entry, source)
        return replace(BillLine.of(moved), paid_txn_id=moved.paid_txn_id)
    if entry["type"] == REFUND_FAILURE:
        return BillLine(
            kind=kind,
            out_trade_no="",
            provider_txn_id=text_of(entry, "id"),
            out_refund_no=refund_number_of(source),
            amount_minor=amount_of(source, "amount"),
            currency=currency_of(source),
            occurred_at=time_of(entry),
            takes_back=text_of(source, "id"),
        )
    intent = source.get("payment_intent") or {}
    refunded = kind is FactKind.REFUNDED
    return BillLine(
        kind=kind,
        out_trade_no=number_of(intent) or number_of(source),
        provider_txn_id=text_of(source, "id") if refunded or not intent else text_of(intent, "id"),
        out_refund_no=refund_number_of(source) if refunded else "",
        amount_minor=amount_of(source, "amount"),
        currency=currency_of(source),
        occurred_at=time_of(entry),
        refund_status=refund_status_of(source) if refunded else RefundStatus.SUCCEEDED,
        paid_txn_id=text_of(intent, "id") if refunded and intent else "",
    )
