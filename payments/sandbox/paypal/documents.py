"""PayPal's documents of trades: orders, captures, refunds, events, transactions.

Source: PayPal, Orders v2, Payments v2, Webhooks v1, Transaction Search v1 (read 2026-11).
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from idempotency.webhooks.paypal import signed_text
from payments import money
from payments.providers import rsa
from payments.sandbox import state
from payments.sandbox.disputes import ANSWER_SECONDS

Row = sqlite3.Row | Mapping[str, Any]
Document = dict[str, Any]


def order(trade: Row, base: str) -> Document:
    """Build an order; `base` is the API's address."""
    kept = state.store().kept_of(trade["prepay"])
    unit: Document = {
        "reference_id": "default",
        "amount": amount(trade["amount_minor"], kept.get("currency", trade["currency"])),
        "payee": payee(trade),
        "description": trade["description"],
        "custom_id": kept.get("custom_id", ""),
        "invoice_id": trade["out_trade_no"],
    }
    if trade["state"] == "SUCCESS":
        refunds = state.store().rows("SELECT * FROM refunds WHERE out_trade_no = ?", trade["out_trade_no"])
        unit["payments"] = {
            "captures": [capture(trade, base)],
            "refunds": [refund(made, trade, base) for made in refunds],
        }
    status = {"SUCCESS": "COMPLETED", "CLOSED": "VOIDED"}.get(trade["state"])
    page = f"{base.removesuffix('/paypal')}/pay/{trade['out_trade_no']}"
    address = f"{base}/v2/checkout/orders/{trade['prepay']}"
    return {
        "id": trade["prepay"],
        "intent": "CAPTURE",
        "status": status or ("APPROVED" if kept.get("approved") else "PAYER_ACTION_REQUIRED"),
        "purchase_units": [unit],
        "create_time": moment(trade["created_at"]),
        "links": [link(address, "self"), link(page, "payer-action")],
    }


def capture(trade: Row, base: str) -> Document:
    status = "COMPLETED"
    if trade["refunded_minor"]:
        whole = trade["refunded_minor"] == trade["charged_minor"]
        status = "REFUNDED" if whole else "PARTIALLY_REFUNDED"
    return {
        "id": trade["transaction_id"],
        "status": status,
        "amount": amount(trade["charged_minor"], trade["currency"]),
        "final_capture": True,
        "invoice_id": trade["out_trade_no"],
        "custom_id": state.store().kept_of(trade["prepay"]).get("custom_id", ""),
        "create_time": moment(trade["paid_at"]),
        "links": [link(f"{base}/v2/checkout/orders/{trade['prepay']}", "up")],
    }


def refund(made: Row, trade: Row, base: str) -> Document:
    """Build a refund; one by hand has no number of the merchant's."""
    kept = state.store().kept_of(made["refund_id"])
    return {
        "id": made["refund_id"],
        "status": "COMPLETED",
        "amount": amount(made["amount_minor"], trade["currency"]),
        **{name: kept[name] for name in ("invoice_id", "custom_id", "note_to_payer") if name in kept},
        "create_time": moment(made["created_at"]),
        "links": [link(f"{base}/v2/payments/captures/{trade['transaction_id']}", "up")],
    }


def transaction(trade: Row, made: Row | None = None) -> Document:
    """Build a line of the search: the payment, or a refund of it."""
    if made is None:
        number, at, kept = trade["transaction_id"], trade["paid_at"], state.store().kept_of(trade["prepay"])
        code, invoice, moved = "T0006", trade["out_trade_no"], amount(trade["charged_minor"], trade["currency"])
    else:
        number, at, kept = made["refund_id"], made["created_at"], state.store().kept_of(made["refund_id"])
        code, invoice, moved = "T1107", kept.get("invoice_id", ""), amount(made["amount_minor"], trade["currency"])
        moved["value"] = f"-{moved['value']}"
    return {
        "transaction_info": {
            "transaction_id": number,
            "transaction_event_code": code,
            "transaction_status": "S",
            "transaction_initiation_date": moment(at),
            "transaction_updated_date": moment(at),
            "transaction_amount": moved,
            "invoice_id": invoice,
            "custom_field": kept.get("custom_id", ""),
        }
    }


def disputed(trade: Row, dispute: Document) -> Document:
    """Build a dispute of a capture."""
    more: Document = {"seller_response_due_date": moment(dispute["opened_at"] + ANSWER_SECONDS)}
    if ended := dispute["status"] != "open":
        favour = {"won": "RESOLVED_SELLER_FAVOUR", "lost": "RESOLVED_BUYER_FAVOUR"}[dispute["status"]]
        more = {"dispute_outcome": {"outcome_code": favour}}
    return {
        "dispute_id": f"PP-D-{trade['transaction_id']}",
        "create_time": moment(dispute["opened_at"]),
        "update_time": moment(dispute["at"]),
        "disputed_transactions": [{"seller_transaction_id": trade["transaction_id"], "seller": payee(trade)}],
        "reason": "MERCHANDISE_OR_SERVICE_NOT_RECEIVED",
        "status": "RESOLVED" if ended else "WAITING_FOR_SELLER_RESPONSE",
        "dispute_amount": amount(trade["charged_minor"], trade["currency"]),
        "dispute_life_cycle_stage": "CHARGEBACK",
        **more,
    }


def chargeback(trade: Row, dispute: Document) -> Document:
    """Build the line of the search that a lost dispute has."""
    line = transaction(trade, _taken(trade, dispute))
    line["transaction_info"] |= {"transaction_event_code": "T1201", "paypal_reference_id": trade["transaction_id"]}
    return line


def notification(notice: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """Build headers and body of one copy of an event, signed now for its endpoint."""
    trade, made, dispute = notice["trade"], notice["refund"], notice.get("dispute")
    base = "https://api.sandbox.example"
    resource: Document
    if dispute is not None:
        kind = notice["event"]
        of, resource = "dispute", disputed(trade, dispute)
        if kind == "PAYMENT.CAPTURE.REVERSED":
            of, resource = "refund", refund(_taken(trade, dispute), trade, base)
    elif notice["event"] == "approved":
        kind, of, resource = "CHECKOUT.ORDER.APPROVED", "checkout-order", order(trade, base)
    elif made is None:
        kind, of, resource = "PAYMENT.CAPTURE.COMPLETED", "capture", capture(trade, base) | {"payee": payee(trade)}
    else:
        kind, of, resource = "PAYMENT.CAPTURE.REFUNDED", "refund", refund(made, trade, base)
    event = {
        "id": f"WH-{notice['id'][:32].upper()}",
        "event_version": "1.0",
        "create_time": moment(notice["created_at"]),
        "resource_type": of,
        "resource_version": "2.0",
        "event_type": kind,
        "summary": f"{of} of a payment of {trade['charged_minor']} {trade['currency']} minor units",
        "resource": resource,
    }
    body = json.dumps(event, ensure_ascii=False).encode()
    transmission, sent_at = secrets.token_hex(16), moment(time.time())
    signed = signed_text(number=transmission, sent_at=sent_at, webhook_id=trade["signed_with"], body=body)
    return {
        "Content-Type": "application/json",
        "Paypal-Transmission-Id": transmission,
        "Paypal-Transmission-Time": sent_at,
        "Paypal-Transmission-Sig": rsa.sign(signed, state.keys().paypal.key),
        "Paypal-Auth-Algo": "SHA256withRSA",
        "Paypal-Cert-Url": "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-sandbox",
    }, body


def _taken(trade: Row, dispute: Document) -> Document:
    """Make what took a lost dispute's money: a refund that nobody asked for."""
    number = f"R{trade['transaction_id'][1:]}"
    return {"refund_id": number, "amount_minor": trade["charged_minor"], "created_at": dispute["taken_at"]}


def return_parameters(trade: Row) -> dict[str, str]:
    """Build what the shopper's browser carries back; no proof of payment."""
    return {"token": trade["prepay"], "PayerID": "QYR5Z8XDVJNXQ"}


def payee(trade: Row) -> Document:
    return {"merchant_id": trade["seller"] or state.keys().paypal.settings["MERCHANT_ID"]}


def amount(minor: int, currency: str) -> dict[str, str]:
    return {"currency_code": currency, "value": money.to_decimal(minor, currency)}


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def link(href: str, rel: str) -> dict[str, str]:
    return {"href": href, "rel": rel, "method": "GET"}
