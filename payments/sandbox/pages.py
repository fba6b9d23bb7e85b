"""The shopper's pages, and the control calls of tests (docs/contract.md, 4)."""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from payments import money
from payments.sandbox import disputes, faults, state, trades
from payments.sandbox.alipay import gateway
from payments.sandbox.paypal import api as paypal
from payments.sandbox.paypal import documents as paypal_documents
from payments.sandbox.stripe import cards
from payments.sandbox.stripe import documents as stripe_documents

# no form-action: Chromium holds it against the redirect after a payment, which leads to any merchant
_POLICY = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"

View = Callable[[HttpRequest], HttpResponse]

_BRANDS = {"wechat": "WeChat Pay", "alipay": "Alipay", "paypal": "PayPal", "stripe": "Stripe"}
# what the browser carries back to the shop
_CARRIED: dict[str, Callable[[sqlite3.Row], dict[str, str]]] = {
    "alipay": gateway.return_parameters,
    "paypal": paypal_documents.return_parameters,
    "stripe": stripe_documents.return_parameters,
}


def content_policy(get_response: View) -> View:
    """Allow the pages no script and no style but their own."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = _POLICY
        return response

    return middleware


def shop(request: HttpRequest) -> dict[str, str]:
    """Give every page the shop's address."""
    return {"shop": state.shop()}


def unknown(request: HttpRequest, exception: Exception) -> HttpResponse:
    return render(request, "unknown.html", status=404)


def trade_or_404(column: str, value: str) -> sqlite3.Row:
    """Read a trade by a unique column. Raises Http404."""
    trade = state.store().trade_where(column, value)
    if trade is None:
        raise Http404
    return trade


def scan(request: HttpRequest) -> HttpResponse:
    return redirect(f"/pay/{trade_or_404('prepay', request.GET.get('pr', ''))['out_trade_no']}")


def cashier(request: HttpRequest, *, out_trade_no: str) -> HttpResponse:
    """Show the trade, what was refused before, and Stripe's form for a card."""
    trade = trade_or_404("out_trade_no", out_trade_no)
    page: dict[str, object] = {"trade": shown(trade)}
    if "declined" in request.GET:
        page["declined"] = cards.SENTENCES.get(request.GET["declined"], cards.SENTENCES["generic_decline"])
    if trade["channel"] == "stripe":
        page |= {"number": cards.shown(request.GET.get("card", "")), "cards": cards.choices()}
    return render(request, "pay.html", page)


def pay(request: HttpRequest, *, out_trade_no: str) -> HttpResponse:
    """Pay as the shopper; a second press charges nothing."""
    trade = trade_or_404("out_trade_no", out_trade_no)
    return _card_refused(request, trade) or _paid(request, out_trade_no)


def _card_refused(request: HttpRequest, trade: sqlite3.Row) -> HttpResponse | None:
    """Answer for a card that is not charged; None: charge it, or the wallet without one."""
    if trade["channel"] != "stripe" or "number" not in request.POST:
        return None
    if refusal := cards.refusal(request.POST["number"]):
        return redirect(f"/pay/{trade['out_trade_no']}?declined={refusal}")
    cards.record(trade["transaction_id"], request.POST["number"])
    return None


def _paid(request: HttpRequest, out_trade_no: str) -> HttpResponse:
    """Pay, and lead the shopper back to where they came from."""
    try:
        trade = _pay(out_trade_no)
    except trades.Refused:
        return redirect(f"/pay/{out_trade_no}")
    if "console" in request.POST:
        return redirect("/")
    back = trade["return_url"] or f"/pay/{out_trade_no}"
    if not trade["return_url"] or trade["channel"] == "wechat":  # WeChat's redirect_url carries nothing
        return redirect(back)
    carried = _CARRIED[trade["channel"]](trade)
    return redirect(back + ("&" if "?" in back else "?") + urlencode(carried))


def _pay(out_trade_no: str) -> sqlite3.Row:
    """Pay as the shopper, who at PayPal approves; raises Refused."""
    approves = trades.existing(out_trade_no)["channel"] == "paypal"
    return paypal.approve(out_trade_no) if approves else trades.pay(out_trade_no)


def _control(example: str) -> Callable[[Callable[[Any], sqlite3.Row]], Callable[[HttpRequest], JsonResponse]]:
    """Decorate a control call that changes a trade: JSON in, the charge or a refusal out."""

    def decorator(change: Callable[[Any], sqlite3.Row]) -> Callable[[HttpRequest], JsonResponse]:
        @wraps(change)
        def view(request: HttpRequest) -> JsonResponse:
            try:
                return JsonResponse(_charge(change(json.loads(request.body))))
            except (ValueError, KeyError, TypeError):
                return JsonResponse({"error": f"send {example}"}, status=400)
            except trades.Refused as refused:
                status = 404 if refused.reason == "not_found" else 409
                return JsonResponse({"error": refused.reason}, status=status)

        return view

    return decorator


@_control('{"out_trade_no": "…"}')
def control_pay(wanted: Any) -> sqlite3.Row:
    number = str(wanted["out_trade_no"])
    gateway.scan(number)  # the shopper scans the code first
    _arrive_from_shop(number)
    return _pay(number)


@_control('{"out_trade_no": "…", "amount_minor": …}')
def control_refund(wanted: Any) -> sqlite3.Row:
    """Refund as a person in the platform's own pages."""
    number, amount_minor = wanted["out_trade_no"], wanted["amount_minor"]
    if not isinstance(number, str) or not isinstance(amount_minor, int) or amount_minor <= 0:
        raise ValueError("a number and an amount above zero")
    return trades.refund_by_hand(out_trade_no=number, amount_minor=amount_minor)


@_control('{"out_trade_no": "…", "status": "open, won or lost"}')
def control_dispute(wanted: Any) -> sqlite3.Row:
    """Dispute a payment as the payer, or end that, at Stripe and PayPal."""
    return disputes.step(out_trade_no=str(wanted["out_trade_no"]), status=str(wanted["status"]))


def control_change(request: HttpRequest) -> JsonResponse:
    """Set faults, and show all of them."""
    try:
        return JsonResponse(faults.change(json.loads(request.body or b"{}")))
    except (ValueError, AttributeError) as error:
        return JsonResponse({"error": str(error)}, status=400)


def control_charges(request: HttpRequest) -> JsonResponse:
    """List what was really charged and refunded, oldest first."""
    charged = state.store().rows("SELECT * FROM trades ORDER BY created_at")
    return JsonResponse([_charge(trade) for trade in charged], safe=False)


def _arrive_from_shop(number: str) -> None:
    """Open the shop's link: Alipay's page has no trade until the shopper arrives."""
    if state.shop() and state.store().trade_where("out_trade_no", number) is None:
        address = f"{state.shop()}/demo/attempts/{quote(number, safe='')}"
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(address, follow_redirects=True, timeout=10, trust_env=False)


def _charge(trade: sqlite3.Row) -> dict[str, object]:
    """Describe a charge; with a `seller` that is not ours, a `currency` that is not CNY."""
    known = {name: trade[name] for name in ("out_trade_no", "channel", "charged_minor", "refunded_minor")}
    unusual = {"seller": trade["seller"], "currency": trade["currency"] if trade["currency"] != "CNY" else ""}
    return known | {name: value for name, value in unusual.items() if value}


def sum_of(amount_minor: int, currency: str) -> str:
    written = money.to_decimal(amount_minor, currency)
    return f"¥{written}" if currency == "CNY" else f"{currency} {written}"


def shown(trade: sqlite3.Row) -> dict[str, object]:
    row = dict(trade)
    status = {"NOTPAY": "waiting", "SUCCESS": "paid", "CLOSED": "closed"}[row["state"]]
    if status == "waiting" and trades.expired(trade):
        status = "expired"
    return row | {
        "sum": sum_of(row["charged_minor"] or row["amount_minor"], trade["currency"]),
        "refunded": sum_of(row["refunded_minor"], trade["currency"]) if row["refunded_minor"] else "",
        "brand": _BRANDS[row["channel"]],
        "payable": status == "waiting",
        "status": status,
    }
