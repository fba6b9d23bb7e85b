"""Facts from Stripe's documents. Pure.

Every function raises KeyError, TypeError, AttributeError or ValueError for a document of another shape. Our
numbers travel as metadata; a document without them is not ours and gives no fact. Source: Stripe API reference,
"PaymentIntent", "Refund", "Dispute", "Types of events" (read 2026-11).
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus, closed_fact
from payments.providers.disputes import Dispute, DisputeStatus
from payments.providers.documents import NUMBER_MAX, amount_of, is_keepable, text_of

CHANNEL = "stripe"
# `charge.refund.updated` equals `refund.updated`; endpoints of older versions get only the former
REFUND_EVENTS = frozenset({"refund.created", "refund.updated", "charge.refund.updated"})
# a bank may send money back that had gone out: the refund has succeeded, and fails days after
FAILURE_EVENTS = REFUND_EVENTS | {"refund.failed"}
_REFUND_STATES = {
    "succeeded": RefundStatus.SUCCEEDED,
    "failed": RefundStatus.FAILED,
    "canceled": RefundStatus.FAILED,
}  # any other: it is under way
# any other is open. An inquiry (``warning_…``) that closes has moved nothing
_ENDED = {"won": DisputeStatus.WON, "warning_closed": DisputeStatus.WON, "lost": DisputeStatus.LOST}
_TO_ANSWER = frozenset({"needs_response", "warning_needs_response"})


def facts_of(event: Mapping[str, Any], *, merchant: str) -> tuple[Fact, ...]:
    """Read a genuine event; no facts where no money of ours moves."""
    kind, document = event["type"], event["data"]["object"]
    if kind in REFUND_EVENTS:
        # a refund made by hand in the dashboard carries no number of ours; the daily bill shows it
        ours = number_of(document) and refund_number_of(document)
        return (refunded_fact(document, merchant=merchant),) if ours and document["status"] == "succeeded" else ()
    if kind == "payment_intent.succeeded" and number_of(document):
        if document.get("status", "succeeded") != "succeeded":
            return ()
        occurred_at = time_of(event) if "created" in event else None
        return (paid_fact(document, merchant=merchant, occurred_at=occurred_at),)
    if kind == "payment_intent.canceled" and number_of(document):
        return (canceled_fact(document, merchant=merchant),)
    return dispute_facts(document, event, merchant=merchant) if kind.startswith("charge.dispute.") else ()


def refund_news(event: Mapping[str, Any]) -> RefundResult | None:
    """Report a refund of ours that failed or was canceled, perhaps after it had succeeded."""
    refund = event["data"]["object"]
    if event["type"] not in FAILURE_EVENTS or not number_of(refund):
        return None
    if refund_status_of(refund) is not RefundStatus.FAILED:
        return None
    return replace(trouble_of(refund), out_refund_no=refund_number_of(refund))


def trouble_of(refund: Mapping[str, Any]) -> RefundResult:
    """Read a refund that has not succeeded, in the same words from an event and from a query."""
    status = refund_status_of(refund)
    failed = f"{refund['status']}: {refund.get('failure_reason') or 'no reason given'}"
    return RefundResult(status=status, message=failed if status is RefundStatus.FAILED else "")


def paid_fact(intent: Mapping[str, Any], *, merchant: str, occurred_at: datetime | None = None) -> Fact:
    """Read a paid intent; `amount_received` came in, `amount` was only asked for.

    Without `occurred_at` the time is its charge's, where that is expanded.
    """
    charge = intent.get("latest_charge")
    if occurred_at is None and isinstance(charge, Mapping):
        occurred_at = time_of(charge)
    return Fact(
        kind=FactKind.PAID,
        channel=CHANNEL,
        merchant=merchant,
        out_trade_no=text_of(intent["metadata"], "out_trade_no"),
        provider_txn_id=text_of(intent, "id"),
        amount_minor=amount_of(intent, "amount_received"),
        currency=currency_of(intent),
        occurred_at=occurred_at,
    )


def canceled_fact(intent: Mapping[str, Any], *, merchant: str) -> Fact:
    return closed_fact(
        channel=CHANNEL,
        merchant=merchant,
        out_trade_no=text_of(intent["metadata"], "out_trade_no"),
        currency=currency_of(intent),
    )


def refunded_fact(refund: Mapping[str, Any], *, merchant: str) -> Fact:
    """Read a refund that succeeded; the payment's amount is known where its intent is expanded."""
    intent = refund["payment_intent"]
    expanded = isinstance(intent, Mapping)
    return Fact(
        kind=FactKind.REFUNDED,
        channel=CHANNEL,
        merchant=merchant,
        out_trade_no=text_of(refund["metadata"], "out_trade_no"),
        provider_txn_id=text_of(refund, "id"),
        amount_minor=amount_of(refund, "amount"),
        currency=currency_of(refund),
        occurred_at=time_of(refund),
        out_refund_no=text_of(refund["metadata"], "out_refund_no"),
        paid_txn_id=text_of(intent, "id") if expanded else text_of(refund, "payment_intent"),
        paid_minor=amount_of(intent, "amount_received") if expanded else None,
    )


def dispute_facts(dispute: Mapping[str, Any], event: Mapping[str, Any], *, merchant: str) -> tuple[Fact, ...]:
    """Read what an event states of a dispute, and what that has moved by then.

    It has no metadata of ours, and names the intent; none at a charge that was made without one.
    """
    if not dispute.get("payment_intent"):
        return ()
    due = dispute["evidence_details"].get("due_by") if dispute["status"] in _TO_ANSWER else None
    said = Dispute(
        status=_ENDED.get(dispute["status"], DisputeStatus.OPEN),
        reason=text_of(dispute, "reason"),
        respond_by=time_of({"created": due}) if due else None,
    )
    entries = dispute["balance_transactions"]
    moved = tuple(replace(disputed_money(entry, dispute), merchant=merchant) for entry in entries)
    claimed = disputed_money({**dispute, "created": event["created"]}, dispute)
    return replace(claimed, kind=FactKind.DISPUTED, merchant=merchant, dispute=said), *moved


def disputed_money(entry: Mapping[str, Any], dispute: Mapping[str, Any]) -> Fact:
    """Read a balance transaction of a dispute: one takes, and one may return what it took.

    The balance may have another currency than the charge, whose amount counts then. The fee is no part of it.
    """
    intent = dispute.get("payment_intent") or {}
    expanded = isinstance(intent, Mapping)
    counts = {"amount": abs(entry["amount"])} if entry["currency"] == dispute["currency"] else dispute
    return Fact(
        kind=FactKind.TAKEN if entry["amount"] < 0 else FactKind.RETURNED,
        channel=CHANNEL,
        merchant="",
        out_trade_no=number_of(intent) if expanded else "",
        provider_txn_id=text_of(dispute, "id"),
        amount_minor=amount_of(counts, "amount"),
        currency=currency_of(dispute),
        occurred_at=time_of(entry),
        paid_txn_id=intent.get("id", "") if expanded else text_of(dispute, "payment_intent"),
    )


def about(document: Mapping[str, Any]) -> dict[str, object]:
    """Collect the members of an intent or refund that `answers.must_match` compares."""
    intent = document.get("payment_intent")
    return {
        "id": document.get("id"),
        "out_trade_no": number_of(document),
        "out_refund_no": refund_number_of(document),
        "amount_minor": document.get("amount"),
        "currency": str(document.get("currency")).upper(),
        "payment_intent": intent.get("id") if isinstance(intent, Mapping) else intent,
    }


def number_of(document: Mapping[str, Any]) -> str:
    """Return our number in the metadata; empty for a document that is not ours.

    An account may serve other systems too, whose numbers may be anything.
    """
    return _named(document, "out_trade_no")


def refund_number_of(document: Mapping[str, Any]) -> str:
    """Return our number of the refund, as `number_of`."""
    return _named(document, "out_refund_no")


def refund_status_of(refund: Mapping[str, Any]) -> RefundStatus:
    """Return the refund's status; an unknown state counts as under way."""
    return _REFUND_STATES.get(refund["status"], RefundStatus.PROCESSING)


def currency_of(document: Mapping[str, Any]) -> str:
    """Return the currency in upper case; Stripe writes it in lower case."""
    return text_of(document, "currency").upper()


def time_of(document: Mapping[str, Any]) -> datetime:
    value = document["created"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("created is not a time")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError("created is not a time") from error


def _named(document: Mapping[str, Any], name: str) -> str:
    number = (document.get("metadata") or {}).get(name, "")
    return number if is_keepable(number, most=NUMBER_MAX) else ""
