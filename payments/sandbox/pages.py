"""What a person sees and what a test turns: the shopper's pages and the control calls (docs/contract.md, 4)."""

import contextlib
import json
import sqlite3
from urllib.parse import quote, urlencode

import httpx
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from payments import money
from payments.sandbox import delivery, faults, state, trades
from payments.sandbox.alipay import codes, gateway
from payments.sandbox.store import expired, paid_elsewhere
from payments.sandbox.stripe import documents as stripe_documents

_SHOWN = 50


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """The latest trades."""
    latest = state.store().rows("SELECT * FROM trades ORDER BY created_at DESC LIMIT ?", _SHOWN)
    return render(request, "home.html", {"trades": [_shown(trade) for trade in latest], "faults": _set_faults()})


@require_GET
def scan(request: HttpRequest) -> HttpResponse:
    """What a phone opens after it scanned a WeChat code: ``/wechat/scan?pr=…``."""
    found = state.store().rows("SELECT out_trade_no FROM trades WHERE prepay = ?", request.GET.get("pr", ""))
    if not found:
        return render(request, "unknown.html", status=404)
    return redirect(f"/pay/{found[0]['out_trade_no']}")


@require_http_methods(["GET", "POST"])
def pay_page(request: HttpRequest, *, out_trade_no: str) -> HttpResponse:
    """The cashier: ``GET`` shows what is asked for, ``POST`` pays it; a second press charges nothing."""
    found = state.store().rows("SELECT * FROM trades WHERE out_trade_no = ?", out_trade_no)
    if not found:
        return render(request, "unknown.html", status=404)
    trade = found[0]
    if request.method == "POST":
        try:
            trade = trades.pay(out_trade_no)
        except trades.Refused:
            return redirect(f"/pay/{out_trade_no}")
        if trade["return_url"]:
            if trade["channel"] == "wechat":  # its redirect_url carries nothing
                return redirect(trade["return_url"])
            mark = "&" if "?" in trade["return_url"] else "?"
            carried = stripe_documents if trade["channel"] == "stripe" else gateway
            return redirect(trade["return_url"] + mark + urlencode(carried.return_parameters(trade)))
        return redirect(f"/pay/{out_trade_no}")
    return render(request, "pay.html", {"trade": _shown(trade)})


@require_POST
def control_pay(request: HttpRequest) -> JsonResponse:
    """``POST /_control/pay``: the shopper pays."""
    try:
        number = json.loads(request.body)["out_trade_no"]
        codes.scan(number)  # who pays has scanned
        _come_from_the_shop(number)
        trade = trades.pay(number)
    except (ValueError, KeyError, TypeError):
        return JsonResponse({"error": 'send {"out_trade_no": "…"}'}, status=400)
    except trades.Refused as refused:
        return JsonResponse({"error": refused.reason}, status=404 if refused.reason == "not_found" else 409)
    return JsonResponse(_charge(trade))


@require_http_methods(["GET", "POST"])
def control_faults(request: HttpRequest) -> JsonResponse:
    """``/_control/faults``: see and set."""
    if request.method == "POST":
        try:
            faults.change(json.loads(request.body or b"{}"))
        except (ValueError, AttributeError) as error:
            return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse(faults.current())


@require_GET
def control_charges(request: HttpRequest) -> JsonResponse:
    """``GET /_control/charges``: what was really charged and given back, oldest first."""
    charged = state.store().rows("SELECT * FROM trades ORDER BY created_at")
    return JsonResponse([_charge(trade) for trade in charged], safe=False)


@require_POST
def control_refund(request: HttpRequest) -> JsonResponse:
    """``POST /_control/refund``: somebody gives money back in the platform's own pages."""
    try:
        wanted = json.loads(request.body)
        number, amount_minor = wanted["out_trade_no"], wanted["amount_minor"]
        if not isinstance(number, str) or not isinstance(amount_minor, int) or amount_minor <= 0:
            raise ValueError("a number and an amount above zero")
        trade = trades.refund_by_hand(out_trade_no=number, amount_minor=amount_minor)
    except (ValueError, KeyError, TypeError):
        return JsonResponse({"error": 'send {"out_trade_no": "…", "amount_minor": …}'}, status=400)
    except trades.Refused as refused:
        return JsonResponse({"error": refused.reason}, status=404 if refused.reason == "not_found" else 409)
    return JsonResponse(_charge(trade))


@require_GET
def control_deliveries(request: HttpRequest) -> JsonResponse:
    """``GET /_control/deliveries``: how many copies of notifications are due, done, lost, given up."""
    return JsonResponse(delivery.counts())


@require_POST
def control_release(request: HttpRequest) -> JsonResponse:
    """``POST /_control/release``: let the answers go that `hold_answers` holds back."""
    return JsonResponse({"released": faults.release()})


def _come_from_the_shop(number: str) -> None:
    """Who pays at Alipay's page was led there by the shop, and not before that does its trade exist."""
    if state.shop() and not state.store().rows("SELECT 1 FROM trades WHERE out_trade_no = ?", number):
        address = f"{state.shop()}/demo/attempts/{quote(number, safe='')}"
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(address, follow_redirects=True, timeout=10, trust_env=False)


def _charge(trade: sqlite3.Row) -> dict[str, object]:
    """With `seller`, the other merchant's id, where the money went to another account."""
    known = {name: trade[name] for name in ("out_trade_no", "channel", "charged_minor", "refunded_minor")}
    seller = paid_elsewhere(trade)
    return known | ({"seller": seller} if seller else {})


def _set_faults() -> dict[str, object]:
    return {name: value for name, value in faults.current().items() if value != faults.NONE[name]}


def _shown(trade: sqlite3.Row) -> dict[str, object]:
    row = dict(trade)
    over = row["state"] == "NOTPAY" and expired(trade)
    return row | {
        "yuan": money.to_decimal(row["charged_minor"] or row["amount_minor"], "CNY"),
        "refunded": money.to_decimal(row["refunded_minor"], "CNY") if row["refunded_minor"] else "",
        "brand": {"wechat": "WeChat Pay", "alipay": "Alipay", "stripe": "Stripe"}[row["channel"]],
        "payable": row["state"] == "NOTPAY" and not over,
        "told": {"NOTPAY": "expired" if over else "waiting", "SUCCESS": "paid", "CLOSED": "closed"}[row["state"]],
    }
