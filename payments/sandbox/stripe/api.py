"""Stripe's API: payment intents, refunds, balance transactions.

Reached under ``/stripe``; form-encoded in, JSON out. A POST with an Idempotency-Key is executed once, and search
is a minute behind, as at the real address. Source: Stripe API reference, "Errors", "Idempotent requests",
"Search", "Pagination", "Expanding responses" (read 2026-11).
"""

import re
import secrets
import sqlite3
import time
from collections.abc import Collection
from functools import partial
from typing import Any

from django.http import HttpRequest

from payments.sandbox import disputes, state, trades
from payments.sandbox.stripe import documents
from payments.sandbox.stripe.documents import Document
from payments.sandbox.stripe.wire import MOST, Entry, Error, Invalid, expanded, nested, page_of

SEARCH_LAG_SECONDS = 60
_METADATA = re.compile(r"metadata\[['\"]([^'\"]+)['\"]\]\s*:\s*['\"]([^'\"]*)['\"]")


def intents(request: HttpRequest) -> Document:
    given = nested(request.GET)
    found = state.store().rows("SELECT * FROM trades WHERE channel = 'stripe' ORDER BY created_at DESC")
    return page_of(
        given,
        [
            Entry(trade["transaction_id"], int(trade["created_at"]), partial(documents.intent, trade))
            for trade in found
        ],
        url="/v1/payment_intents",
    )


def create(request: HttpRequest) -> Document:
    given = nested(request.POST)
    amount, currency = _amount(given), str(given.get("currency", ""))
    if not re.fullmatch(r"[a-z]{3}", currency):
        raise Invalid("Invalid currency: must be three letters in lower case")
    method = (given.get("payment_method_data") or {}).get("type", "")
    types = list((given.get("payment_method_types") or {"0": method or "card"}).values())
    return_url = str(given.get("return_url", ""))
    confirmed = given.get("confirm") == "true"
    if confirmed:
        _must_be_confirmable(given, method=method, types=types, return_url=return_url)
    metadata = given.get("metadata") or {}
    number, prepay = f"pi_{secrets.token_hex(12)}", secrets.token_hex(6)
    # a second intent of the same order number is one more that can be charged, as at Stripe
    ours = metadata.get("out_trade_no") or number
    out_trade_no = number if state.store().trade_where("out_trade_no", ours) else ours
    page = request.build_absolute_uri(f"/pay/{out_trade_no}")
    action = _next_action(method, page=page, prepay=prepay, return_url=return_url)
    state.store().keep(number, metadata=metadata, method=types[0], confirmed=confirmed, next_action=action)
    trade = trades.open_trade(
        channel="stripe",
        out_trade_no=out_trade_no,
        amount_minor=amount,
        currency=currency.upper(),
        transaction_id=number,
        prepay=prepay,
        description=given.get("description", ""),
        notify_url=metadata.get("notify_url", ""),
        return_url=return_url,
    )
    return documents.intent(trade, expand=expanded(given))


def _must_be_confirmable(given: Document, *, method: str, types: list[str], return_url: str) -> None:
    """Check the parameters that confirming an intent needs. Raises Invalid."""
    if method not in types:
        raise Invalid("To confirm, payment_method_data[type] must be one of payment_method_types")
    if not return_url.startswith("http"):
        raise Invalid("return_url must be an absolute address")
    options = given.get("payment_method_options") or {}
    if method == "wechat_pay" and (options.get("wechat_pay") or {}).get("client") != "web":
        raise Invalid("payment_method_options[wechat_pay][client] must be web")


def _next_action(method: str, *, page: str, prepay: str, return_url: str) -> Document:
    if method == "wechat_pay":
        code = {"data": f"weixin://wxpay/bizpayurl?pr={prepay}", "hosted_instructions_url": page}
        images = dict.fromkeys(("image_data_url", "image_url_png", "image_url_svg"), "")
        return {"type": "wechat_pay_display_qr_code", "wechat_pay_display_qr_code": code | images}
    kind = "alipay_handle_redirect" if method == "alipay" else "redirect_to_url"
    return {"type": kind, kind: {"url": page, "return_url": return_url}}


def search(request: HttpRequest) -> Document:
    """Search by one metadata value."""
    given = nested(request.GET)
    asked = _METADATA.fullmatch(str(given.get("query", "")).strip())
    if asked is None:
        raise Invalid("the sandbox searches for metadata['name']:'value' only")
    name, value = asked.groups()
    found = state.store().rows(
        "SELECT trades.* FROM trades JOIN objects ON id = transaction_id"
        " WHERE json_extract(kept, ?) = ? AND created_at <= ? ORDER BY created_at DESC LIMIT ?",
        f'$.metadata."{name}"',
        value,
        time.time() - SEARCH_LAG_SECONDS,
        MOST,
    )
    expand = expanded(given, "data.")
    return {
        "object": "search_result",
        "url": "/v1/payment_intents/search",
        "has_more": False,
        "next_page": None,
        "data": [documents.intent(trade, expand=expand) for trade in found],
    }


def intent(request: HttpRequest, *, number: str) -> Document:
    return documents.intent(_trade(number), expand=expanded(nested(request.GET)))


def cancel(request: HttpRequest, *, number: str) -> Document:
    trade = _trade(number)
    try:
        if trade["state"] == "CLOSED":
            raise trades.Refused("closed")
        trades.close(channel="stripe", out_trade_no=trade["out_trade_no"])
    except trades.Refused as refused:
        status = {"paid": "succeeded", "closed": "canceled"}[refused.reason]
        raise Error(
            400,
            f"You cannot cancel this PaymentIntent because it has a status of {status}.",
            code="payment_intent_unexpected_state",
        ) from refused
    return documents.intent(_trade(number), expand=expanded(nested(request.POST)))


def refunds(request: HttpRequest) -> Document:
    given = nested(request.GET)
    trade = _trade(str(given.get("payment_intent", "")))
    made = state.store().rows(
        "SELECT * FROM refunds WHERE out_trade_no = ? ORDER BY created_at DESC", trade["out_trade_no"]
    )
    return page_of(
        given,
        [Entry(one["refund_id"], int(one["created_at"]), partial(documents.refund, one, trade)) for one in made],
        url="/v1/refunds",
    )


def give_back(request: HttpRequest) -> Document:
    given = nested(request.POST)
    trade = _trade(str(given.get("payment_intent", "")))
    left = trade["charged_minor"] - trade["refunded_minor"]
    amount = _amount(given) if "amount" in given else left
    if trade["state"] != "SUCCESS":
        raise Error(
            400,
            f"This PaymentIntent ({trade['transaction_id']}) does not have a successful charge to refund.",
            code="payment_intent_unexpected_state",
        )
    if not left:
        raise Error(400, "The charge has already been refunded.", code="charge_already_refunded")
    metadata = given.get("metadata") or {}
    number = f"re_{secrets.token_hex(12)}"
    ours = metadata.get("out_refund_no") or number
    # the same number under another Idempotency-Key is one more refund, as at Stripe
    out_refund_no = number if trades.find_refund(trade["out_trade_no"], ours) else ours
    state.store().keep(number, metadata=metadata, reason=given.get("reason"))
    try:
        made, _ = trades.refund(
            channel="stripe",
            out_trade_no=trade["out_trade_no"],
            out_refund_no=out_refund_no,
            amount_minor=amount,
            refund_id=number,
        )
    except trades.Refused as refused:
        raise Error(400, f"Refund amount ({amount}) is greater than unrefunded amount ({left})") from refused
    return documents.refund(made, _trade(trade["transaction_id"]), expand=expanded(given))


def refund(request: HttpRequest, *, number: str) -> Document:
    made = state.store().row("SELECT * FROM refunds WHERE refund_id = ?", number)
    trade = state.store().trade("stripe", made["out_trade_no"]) if made else None
    if made is None or trade is None:
        raise Error(404, f"No such refund: '{number}'", code="resource_missing")
    return documents.refund(made, trade, expand=expanded(nested(request.GET)))


def balance_transactions(request: HttpRequest) -> Document:
    given = nested(request.GET)
    entries = []
    for moment, trade, made in reversed(trades.moved("stripe")):
        kind, number = documents.kind_of(trade, made)
        if given.get("type") in (None, kind):
            build = partial(documents.balance_transaction, trade, made)
            entries.append(Entry(number, int(moment), build))
        if made is None and given.get("type") in (None, "adjustment"):
            for at, entry in enumerate(documents.adjustments(trade, disputes.of(trade))):
                entries.append(Entry(entry["id"], entry["created"], partial(_adjustment, trade, at)))
    return page_of(given, entries, url="/v1/balance_transactions")


def _adjustment(trade: sqlite3.Row, at: int, *, expand: Collection[str] = ()) -> Document:
    return documents.adjustments(trade, disputes.of(trade), expand=expand)[at]


def _amount(given: dict[str, Any]) -> int:
    text = str(given.get("amount", ""))
    if not text.isdigit() or not int(text):
        raise Invalid(f"Invalid integer: {text}")
    return int(text)


def _trade(number: str) -> sqlite3.Row:
    trade = state.store().trade_where("transaction_id", number)
    if trade is None or trade["channel"] != "stripe":
        raise Error(404, f"No such payment_intent: '{number}'", code="resource_missing")
    return trade
