"""Stripe's documents of trades: intents, charges, refunds, balance, events.

Source: Stripe API reference, the objects of these names, API version 2026-10-28.endive (read 2026-11).
"""

import hashlib
import hmac
import json
import sqlite3
import time
from collections.abc import Collection, Mapping
from typing import Any

from payments.sandbox import faults, state
from payments.sandbox.disputes import ANSWER_SECONDS

API_VERSION = "2026-10-28.endive"

DISPUTE_FEE = 1500  # in the charge's currency, unlike the platform's

# the payer, as the form or wallet gives it; unknown members are null
BILLING_DETAILS = {
    "address": dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state")),
    "email": "lin.xiaomei@sandbox.example",
    "name": "Lin Xiaomei",
    "phone": None,
    "tax_id": None,
}

Row = sqlite3.Row | Mapping[str, Any]
Document = dict[str, Any]


def intent(trade: Row, *, expand: Collection[str] = ()) -> Document:
    """Build a PaymentIntent; `latest_charge` can be expanded."""
    kept = state.store().kept_of(trade["transaction_id"])
    paid = trade["state"] == "SUCCESS"
    latest = None
    if paid:
        latest = charge(trade) if "latest_charge" in expand else _id("py_", trade)
    status = {"SUCCESS": "succeeded", "CLOSED": "canceled"}.get(trade["state"])
    if status is None:
        status = "requires_action" if kept.get("confirmed") else "requires_confirmation"
    return {
        "id": trade["transaction_id"],
        "object": "payment_intent",
        "amount": trade["amount_minor"],
        "amount_received": trade["charged_minor"],
        "canceled_at": int(trade["created_at"]) if trade["state"] == "CLOSED" else None,
        "capture_method": "automatic",
        "client_secret": f"{trade['transaction_id']}_secret_sandbox",
        "confirmation_method": "automatic",
        "created": int(trade["created_at"]),
        "currency": trade["currency"].lower(),
        "description": trade["description"] or None,
        "last_payment_error": None,
        "latest_charge": latest,
        "livemode": False,
        "metadata": kept.get("metadata", {"out_trade_no": trade["out_trade_no"]}),
        "next_action": kept.get("next_action") if status == "requires_action" else None,
        "payment_method": _id("pm_", trade) if paid or kept.get("confirmed") else None,
        "payment_method_types": [kept.get("method", "alipay")],
        "status": status,
    }


def charge(trade: Row) -> Document:
    """Build the Charge of a paid intent; it has the intent's metadata."""
    kept = state.store().kept_of(trade["transaction_id"])
    return {
        "id": _id("py_", trade),
        "object": "charge",
        "amount": trade["charged_minor"],
        "amount_captured": trade["charged_minor"],
        "amount_refunded": trade["refunded_minor"],
        "billing_details": BILLING_DETAILS,
        "captured": True,
        "created": int(trade["paid_at"]),
        "currency": trade["currency"].lower(),
        "livemode": False,
        "metadata": kept.get("metadata", {"out_trade_no": trade["out_trade_no"]}),
        "paid": True,
        "payment_intent": trade["transaction_id"],
        "payment_method": _id("pm_", trade),
        "payment_method_details": _paid_with(kept, trade),
        "receipt_email": None,
        "refunded": trade["refunded_minor"] == trade["charged_minor"],
        "status": "succeeded",
    }


def refund(made: Row, trade: Row, *, expand: Collection[str] = ()) -> Document:
    """Build a Refund; `payment_intent` can be expanded."""
    kept = state.store().kept_of(made["refund_id"])
    whole = "payment_intent" in expand
    return {
        "id": made["refund_id"],
        "object": "refund",
        "amount": made["amount_minor"],
        "charge": _id("py_", trade),
        "created": int(made["created_at"]),
        "currency": trade["currency"].lower(),
        "metadata": kept.get("metadata", {}),
        "payment_intent": intent(trade) if whole else trade["transaction_id"],
        "reason": kept.get("reason"),
        "status": "pending" if faults.current()["refund_abnormal"] else "succeeded",
    }


def disputed(trade: Row, dispute: Document, *, expand: Collection[str] = ()) -> Document:
    """Build a Dispute; its intent can be expanded. A card's issuer has said ``fraudulent``."""
    return {
        "id": _id("du_", trade),
        "object": "dispute",
        "amount": trade["charged_minor"],
        "balance_transactions": adjustments(trade, dispute),
        "charge": _id("py_", trade),
        "created": int(dispute["opened_at"]),
        "currency": trade["currency"].lower(),
        "evidence_details": {"due_by": int(dispute["opened_at"]) + ANSWER_SECONDS, "has_evidence": False},
        "is_charge_refundable": False,
        "metadata": {},
        "payment_intent": intent(trade) if "payment_intent" in expand else trade["transaction_id"],
        "reason": "fraudulent",
        "status": "needs_response" if dispute["status"] == "open" else dispute["status"],
    }


def adjustments(trade: Row, dispute: Document, *, expand: Collection[str] = ()) -> list[Document]:
    """Build a dispute's BalanceTransactions, oldest first; in it their source is its number."""
    number, deep = _id("du_", trade), "source.payment_intent" in expand
    source: Any = number
    if deep or "source" in expand:
        source = disputed(trade, dispute, expand=("payment_intent",) if deep else ())
    amount, kinds = trade["charged_minor"], {"type": "adjustment", "currency": trade["currency"].lower()}
    return [
        _transaction(f"txn_{name}_{number}", signed, dispute[name], source, fee=fee, **kinds)
        for name, signed, fee in (("taken_at", -amount, DISPUTE_FEE), ("returned_at", amount, 0))
        if name in dispute
    ]


def kind_of(trade: Row, made: Row | None) -> tuple[str, str]:
    """Return type and id of the balance transaction of a payment, or of a refund of it."""
    card = _method(state.store().kept_of(trade["transaction_id"])) == "card"
    if made is None:
        return "charge" if card else "payment", _id("txn_py_", trade)
    return "refund" if card else "payment_refund", f"txn_{made['refund_id']}"


def balance_transaction(trade: Row, made: Row | None = None, *, expand: Collection[str] = ()) -> Document:
    """Build a BalanceTransaction; `source` and that one's intent can be expanded."""
    deep = "source.payment_intent" in expand
    kind, number = kind_of(trade, made)
    source: Document
    if made is None:
        amount, moment = trade["charged_minor"], int(trade["paid_at"])
        source = charge(trade) | ({"payment_intent": intent(trade)} if deep else {})
    else:
        amount, moment = -made["amount_minor"], int(made["created_at"])
        source = refund(made, trade, expand=("payment_intent",) if deep else ())
    shown = source if deep or "source" in expand else source["id"]
    return _transaction(number, amount, moment, shown, currency=source["currency"], type=kind)


def _transaction(number: str, amount: int, moment: float, source: Any, *, fee: int = 0, **more: str) -> Document:
    return {
        "id": number,
        "object": "balance_transaction",
        "amount": amount,
        "available_on": int(moment) + 7 * 86_400,
        "created": int(moment),
        "fee": fee,
        "net": amount - fee,
        "source": source,
        "status": "pending",
        **more,
    }


def notification(notice: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """Build headers and body of one copy of an event, with its own time stamp."""
    trade, made, dispute = notice["trade"], notice["refund"], notice.get("dispute")
    if dispute is not None:
        kind, content, moment = notice["event"], disputed(trade, dispute), dispute["at"]
    elif made is not None:
        kind, content, moment = "refund.created", refund(made, trade), made["created_at"]
    elif notice["event"] == "closed":
        kind, content, moment = "payment_intent.canceled", intent(trade), notice["created_at"]
    else:
        kind, content, moment = "payment_intent.succeeded", intent(trade), trade["paid_at"]
    body = json.dumps(
        {
            "id": f"evt_{notice['id'][:28]}",
            "object": "event",
            "api_version": API_VERSION,
            "created": int(moment),
            "data": {"object": content},
            "livemode": False,
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
            "type": kind,
        },
        ensure_ascii=False,
        indent=2,
    ).encode()
    secret = state.keys().settings["STRIPE_WEBHOOK_SECRET"]
    header = signature(body, secret=secret, timestamp=int(time.time()))
    return {"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": header}, body


def signature(body: bytes, *, secret: str, timestamp: int) -> str:
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def return_parameters(trade: Row) -> dict[str, str]:
    """Build what the shopper's browser carries back; no proof of payment."""
    return {
        "payment_intent": trade["transaction_id"],
        "payment_intent_client_secret": f"{trade['transaction_id']}_secret_sandbox",
        "redirect_status": "succeeded",
    }


def _id(prefix: str, trade: Row) -> str:
    """Number an object of the intent's."""
    return f"{prefix}{trade['transaction_id'].removeprefix('pi_')}"


def _method(kept: Document) -> str:
    """Return what the shopper paid with: a card on our page, else the wallet of the intent."""
    return "card" if "card" in kept else str(kept.get("method", "alipay"))


def _paid_with(kept: Document, trade: Row) -> Document:
    """Build a charge's `payment_method_details`: the account at the wallet, or the card."""
    method, number = _method(kept), _id("", trade)
    details: dict[str, Document] = {
        "alipay": {"buyer_id": "2088000000000002", "fingerprint": "SandboxWallet001", "transaction_id": number},
        "wechat_pay": {"fingerprint": "SandboxWallet002", "location": None, "transaction_id": number},
        "card": {
            "brand": "visa",
            "country": "CN",
            "exp_month": 12,
            "exp_year": 2034,
            "fingerprint": "SandboxCard00001",
            "funding": "credit",
            "last4": kept.get("card", "4242"),
            "network": "visa",
        },
    }
    return {"type": method, method: details.get(method, {})}
