"""Facts from PayPal's documents. Pure.

Every function raises KeyError, TypeError, AttributeError or ValueError for a document of another shape. Our
number travels as ``invoice_id`` and our mark as ``custom_id``: another system of the account has none. Source:
PayPal, Orders v2, Payments v2 and Disputes v1, "Webhook event names" (read 2026-11).
"""

from datetime import datetime
from typing import Any

from payments import money
from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus
from payments.providers.disputes import Dispute, DisputeStatus
from payments.providers.documents import NUMBER_MAX, in_utc, is_keepable, text_of

Document = dict[str, Any]

CHANNEL = "paypal"
# without those that it takes in one country only, or with other places than ISO 4217
# (Source: PayPal, "Currency codes", read 2026-11)
CURRENCIES = "AUD CAD CHF CZK DKK EUR GBP HKD ILS JPY MXN NOK NZD PHP PLN SEK SGD THB USD"
OURS = "payonce"
CLOSED = f"{OURS}:closed"  # PayPal cannot close an order; this keeps us from ever capturing it

PAID_STATES = frozenset({"COMPLETED", "PARTIALLY_REFUNDED", "REFUNDED"})
REFUND_STATES = {
    "COMPLETED": RefundStatus.SUCCEEDED,
    "FAILED": RefundStatus.FAILED,
    "CANCELLED": RefundStatus.FAILED,
}

# any other outcome takes nothing from us: for the seller, dropped by the buyer, or paid by PayPal
_LOST = frozenset({"RESOLVED_BUYER_FAVOUR", "ACCEPTED"})


def written(amount_minor: int, currency: str) -> Document:
    """Write an amount as PayPal does: ``{"currency_code": "USD", "value": "19.90"}``."""
    return {"currency_code": currency, "value": money.to_decimal(amount_minor, currency)}


def unit_of(order: Document) -> Document:
    """Return the one purchase unit of an order of ours."""
    unit: Document
    (unit,) = order["purchase_units"]
    return unit


def payments_of(unit: Document, kind: str) -> list[Document]:
    """List the unit's ``captures`` or ``refunds``."""
    return (unit.get("payments") or {}).get(kind) or []


def paid_facts(unit: Document, *, merchant: str) -> tuple[Fact, ...]:
    return tuple(
        paid_fact({"payee": unit.get("payee"), **capture}, unit["invoice_id"], merchant=merchant)
        for capture in payments_of(unit, "captures")
        if capture["status"] in PAID_STATES
    )


def paid_fact(capture: Document, number: str, *, merchant: str) -> Fact:
    """Read a capture; `merchant` got it unless it names another payee."""
    got_by = (capture.get("payee") or {}).get("merchant_id") or merchant
    return _fact(capture, FactKind.PAID, merchant=got_by, out_trade_no=number)


def refund_result(refund: Document, *, merchant: str, paid_minor: int | None = None) -> RefundResult:
    """Read a refund of ours; an unknown state counts as under way."""
    status, number = REFUND_STATES.get(refund["status"], RefundStatus.PROCESSING), text_of(refund, "invoice_id")
    if status is not RefundStatus.SUCCEEDED:
        return RefundResult(status=status, message=refund["status"], out_refund_no=number)
    fact = _fact(
        refund,
        FactKind.REFUNDED,
        merchant=merchant,
        out_trade_no=number_of(refund),
        out_refund_no="" if is_by_hand(refund) else number,
        paid_txn_id=capture_of(refund),
        paid_minor=paid_minor,
    )
    return RefundResult(status=status, facts=(fact,), out_refund_no=number)


def notified(event: Document, *, merchant: str) -> tuple[tuple[Fact, ...], RefundResult | None]:
    """Read a genuine event: its fact, or the failed refund; neither if no money of ours moves."""
    kind, payment = event["event_type"], event["resource"]
    if kind.startswith("CUSTOMER.DISPUTE."):
        about = next(iter(payment.get("disputed_transactions") or ()), Document())
        is_about_us = about.get("seller_transaction_id")  # else no payment of this account's is named
        return ((disputed_fact(payment, about, merchant=merchant),) if is_about_us else ()), None
    if kind == "PAYMENT.CAPTURE.REVERSED" and capture_of(payment) and payment["status"] == "COMPLETED":
        return (taken_fact(payment, merchant=merchant),), None
    if not is_keepable(payment.get("invoice_id"), most=NUMBER_MAX):
        return (), None
    if kind == "PAYMENT.CAPTURE.COMPLETED" and payment.get("custom_id") in (OURS, CLOSED):
        return (paid_fact(payment, text_of(payment, "invoice_id"), merchant=merchant),), None
    if kind in ("PAYMENT.CAPTURE.REFUNDED", "PAYMENT.REFUND.FAILED") and number_of(payment):
        result = refund_result(payment, merchant=merchant)
        return result.facts, result if result.status is RefundStatus.FAILED else None
    return (), None


def approved(event: Document) -> str:
    """Return our number of the order that the shopper has approved; empty for any other event."""
    units = event["resource"].get("purchase_units") if event["event_type"] == "CHECKOUT.ORDER.APPROVED" else None
    numbers = (unit.get("invoice_id") for unit in units or () if unit.get("custom_id") == OURS)
    return next((number for number in numbers if is_keepable(number, most=NUMBER_MAX)), "")


def disputed_fact(dispute: Document, about: Document, *, merchant: str) -> Fact:
    """Read what is stated of a dispute `about` one transaction; it moves nothing by itself."""
    ended = dispute["status"] == "RESOLVED"
    outcome = (dispute.get("dispute_outcome") or {}).get("outcome_code")
    status = DisputeStatus.LOST if outcome in _LOST else DisputeStatus.WON
    due = None if ended else dispute.get("seller_response_due_date")
    said = Dispute(
        status=status if ended else DisputeStatus.OPEN,
        reason=text_of(dispute, "reason"),
        respond_by=in_utc(datetime.fromisoformat(due)) if due else None,
    )
    return _fact(
        {
            "id": text_of(dispute, "dispute_id"),
            "amount": dispute["dispute_amount"],
            "create_time": dispute.get("update_time") or text_of(dispute, "create_time"),
        },
        FactKind.DISPUTED,
        merchant=(about.get("seller") or {}).get("merchant_id") or merchant,
        out_trade_no="",
        paid_txn_id=text_of(about, "seller_transaction_id"),
        dispute=said,
    )


def taken_fact(reversal: Document, *, merchant: str) -> Fact:
    """Read a reversal: a refund without its dispute's number; its link ``up`` is the capture.

    Source: "Webhook event names", the sample of PAYMENT.CAPTURE.REVERSED (read 2026-11). That the bill lists it by
    this number is stated nowhere; it does list captures and refunds by theirs.
    """
    number = capture_of(reversal)
    return _fact(reversal, FactKind.TAKEN, merchant=merchant, out_trade_no="", paid_txn_id=number)


def mark_of(out_trade_no: str) -> str:
    """Return the ``custom_id`` of a refund of ours."""
    return f"{OURS}:{out_trade_no}"


def number_of(refund: Document) -> str:
    """Return our number of a refund's trade, empty if it is not ours; by hand, its capture's."""
    mark, _, number = str(refund.get("custom_id")).partition(":")
    number = refund.get("invoice_id", "") if is_by_hand(refund) else number
    return number if mark == OURS and is_keepable(number, most=NUMBER_MAX) else ""


def is_by_hand(refund: Document) -> bool:
    """Check if a refund has its capture's mark and number, as one made at PayPal has."""
    return refund.get("custom_id") in (OURS, CLOSED)


def capture_of(refund: Document) -> str:
    """Return PayPal's number of the capture that a refund is of; empty if it does not say."""
    above = (link["href"] for link in refund.get("links", []) if link["rel"] == "up")
    kind, _, number = next(above, "").rpartition("/")
    return number if kind.endswith("/captures") else ""


def _fact(payment: Document, kind: FactKind, **members: Any) -> Fact:
    when, amount = payment.get("create_time"), payment["amount"]
    return Fact(
        kind=kind,
        channel=CHANNEL,
        provider_txn_id=text_of(payment, "id"),
        amount_minor=money.from_decimal(text_of(amount, "value"), amount["currency_code"]),
        currency=amount["currency_code"],
        occurred_at=in_utc(datetime.fromisoformat(when)) if when else None,
        **members,
    )
