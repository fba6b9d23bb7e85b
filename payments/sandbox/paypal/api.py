"""PayPal's API, reached under ``/paypal``, and the approval on its page.

Source: PayPal, Orders v2, Payments v2, Webhooks v1, Transaction Search v1 (read 2026-11).
"""

import math
import sqlite3
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.http import HttpRequest

from payments import money
from payments.sandbox import disputes, faults, state, trades
from payments.sandbox.paypal import documents
from payments.sandbox.paypal.documents import Document
from payments.sandbox.paypal.keys import number as new_number
from payments.sandbox.paypal.wire import unknown, unprocessable

Answer = tuple[int, Document | None]


def create(request: HttpRequest, wanted: Any) -> Answer:
    (unit,) = wanted["purchase_units"]
    if wanted["intent"] != "CAPTURE":
        raise ValueError("the sandbox captures at once only")
    minor, currency = _minor(unit["amount"]), unit["amount"]["currency_code"]
    pages = wanted["payment_source"]["paypal"]["experience_context"]
    endpoint = state.store().kept_of("paypal's endpoint")
    try:
        trade = trades.open_trade(
            channel="paypal",
            out_trade_no=unit["invoice_id"],
            amount_minor=minor,
            currency=currency,
            transaction_id=new_number(17),
            prepay=new_number(17),
            description=unit.get("description", ""),
            notify_url=endpoint.get("url", ""),
            signed_with=endpoint.get("id", ""),
            return_url=pages["return_url"],
        )
    except trades.Refused as refused:
        raise unprocessable("DUPLICATE_INVOICE_ID", "Duplicate Invoice ID detected.") from refused
    state.store().keep(trade["prepay"], custom_id=unit.get("custom_id", ""), currency=currency)
    return 201, documents.order(trade, _base(request))


def order(request: HttpRequest, wanted: Any, *, reference: str) -> Answer:
    return 200, documents.order(_trade("prepay", reference), _base(request))


def change(request: HttpRequest, wanted: Any, *, reference: str) -> Answer:
    if _trade("prepay", reference)["state"] == "SUCCESS":
        raise unprocessable("ORDER_ALREADY_COMPLETED", "The order cannot be patched after it is completed.")
    for part in wanted:
        if part["path"] != "/purchase_units/@reference_id=='default'/custom_id":
            raise ValueError("the sandbox changes the custom_id only")
        state.store().keep(reference, custom_id=part["value"])
    return 204, None


def capture(request: HttpRequest, wanted: Any, *, reference: str) -> Answer:
    """Capture an approved order."""
    trade = _trade("prepay", reference)
    if trade["state"] == "SUCCESS":
        raise unprocessable("ORDER_ALREADY_CAPTURED", "Order already captured.")
    if not state.store().kept_of(reference).get("approved"):
        raise unprocessable("ORDER_NOT_APPROVED", "Payer has not yet approved the Order for payment.")
    try:
        paid = trades.pay(trade["out_trade_no"])
    except trades.Refused as refused:
        raise unprocessable("ORDER_CANNOT_BE_CAPTURED", "The order is voided.") from refused
    return 201, documents.order(paid, _base(request))


def refund(request: HttpRequest, wanted: Any, *, number: str) -> Answer:
    trade = _trade("transaction_id", number)
    left = trade["charged_minor"] - trade["refunded_minor"]
    amount = _minor(wanted["amount"]) if "amount" in wanted else left
    if faults.current()["not_enough"]:
        raise unprocessable(
            "REFUND_FAILED_INSUFFICIENT_FUNDS", "Capture could not be refunded due to insufficient funds."
        )
    refund_id = new_number(17)
    sent = ("invoice_id", "custom_id", "note_to_payer")
    state.store().keep(refund_id, **{name: wanted[name] for name in sent if name in wanted})
    # the same invoice id under another PayPal-Request-Id is one more refund
    try:
        made, _ = trades.refund(
            channel="paypal",
            out_trade_no=trade["out_trade_no"],
            out_refund_no=refund_id,
            amount_minor=amount,
            refund_id=refund_id,
        )
    except trades.Refused as refused:
        if refused.reason == "not_found":
            raise unknown() from refused
        raise unprocessable("REFUND_AMOUNT_EXCEEDED", "More than what is left of the capture.") from refused
    return 201, documents.refund(made, _trade("transaction_id", number), _base(request))


def webhooks(request: HttpRequest, wanted: Any) -> Answer:
    """Register an endpoint. Orders opened later notify it, and no other."""
    made = {"id": new_number(17), "url": wanted["url"], "event_types": wanted["event_types"]}
    state.store().keep("paypal's endpoint", **made)
    return 201, made


def transactions(request: HttpRequest, wanted: Any) -> Answer:
    """Search. Unlike the platform, it shows what moved just now."""
    begin, end = (datetime.fromisoformat(request.GET[name]).timestamp() for name in ("start_date", "end_date"))
    size, page = int(request.GET.get("page_size", 100)), int(request.GET.get("page", 1))
    lines = []
    for at, trade, made in trades.moved("paypal"):
        lines.append((at, documents.transaction(trade, made)))
        if made is None and "taken_at" in (dispute := disputes.of(trade)):
            lines.append((dispute["taken_at"], documents.chargeback(trade, dispute)))
    moved = [line for at, line in sorted(lines, key=itemgetter(0)) if begin <= int(at) <= end]
    return 200, {
        "transaction_details": moved[(page - 1) * size : page * size],
        "page": page,
        "total_items": len(moved),
        "total_pages": math.ceil(len(moved) / size),
    }


def approve(out_trade_no: str) -> sqlite3.Row:
    """Approve the order as the payer; the merchant captures it.

    Raises:
        trades.Refused: it is not open any more.
    """
    trade = trades.existing(out_trade_no, "paypal")
    if trade["state"] == "CLOSED":
        raise trades.Refused("closed")
    if not state.store().kept_of(trade["prepay"]).get("approved"):
        state.store().keep(trade["prepay"], approved=True)
        with state.store().write() as connection:
            trades.enqueue(connection, trade, event="approved")
    return trade


def _trade(column: str, value: str) -> sqlite3.Row:
    trade = state.store().trade_where(column, value)
    if trade is None or trade["channel"] != "paypal":
        raise unknown()
    return trade


def _minor(amount: Document) -> int:
    return money.from_decimal(amount["value"], amount["currency_code"])


def _base(request: HttpRequest) -> str:
    return request.build_absolute_uri("/paypal")
