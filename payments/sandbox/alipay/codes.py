"""QR codes: a precreated trade begins when a shopper scans its code."""

import secrets
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from payments.sandbox import state, trades
from payments.sandbox.alipay.wire import Call, wanted_trade


def precreate(call: Call) -> dict[str, Any]:
    """Answer ``alipay.trade.precreate``; the same number again is the same code."""
    wanted = wanted_trade(call)
    number, amount = wanted["out_trade_no"], wanted["amount_minor"]
    if not isinstance(number, str) or not number or amount <= 0:
        raise ValueError("out_trade_no and an amount above zero are needed")
    trade = state.store().trade("alipay", number)
    if trade is not None and trade["amount_minor"] != amount:
        raise trades.Refused("used")
    if trade is not None and trade["state"] != "NOTPAY":
        raise trades.Refused("paid" if trade["state"] == "SUCCESS" else "closed")
    known = state.store().first(f"code of {number}", code=secrets.token_hex(12), trade=wanted)
    if known["trade"]["amount_minor"] != amount:
        raise trades.Refused("used")
    state.store().keep(f"code {known['code']}", out_trade_no=number)
    return {"out_trade_no": number, "qr_code": f"{call.base_url}/alipay/qr/{known['code']}"}


def scan(out_trade_no: str) -> None:
    """Open the trade of a scanned code, unless it is open or there is no code."""
    known = state.store().kept_of(f"code of {out_trade_no}")
    if known and state.store().trade("alipay", out_trade_no) is None:
        trades.open_trade(channel="alipay", **known["trade"])


def qr(request: HttpRequest, *, code: str) -> HttpResponse:
    """Follow a code to its cashier."""
    found = state.store().kept_of(f"code {code}")
    if not found:
        raise Http404
    scan(found["out_trade_no"])
    return redirect(f"/pay/{found['out_trade_no']}")
