"""Alipay's gateway: verifies RSA2 of every request, signs every answer.

``GET`` with `alipay.trade.page.pay` shows the shopper's page; ``POST`` takes the merchant server's calls.
Documents: Alipay open platform (read 2026-11).
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from payments import money
from payments.sandbox import faults, state, trades
from payments.sandbox.alipay import bill
from payments.sandbox.alipay.wire import (
    Call,
    china_time,
    signed_answer,
    signed_form,
    wanted_trade,
    why_not_genuine,
    yuan,
)

_REFUSALS = {
    "not_found": ("ACQ.TRADE_NOT_EXIST", "交易不存在"),
    "used": ("ACQ.CONTEXT_INCONSISTENT", "交易信息被篡改"),
    "paid": ("ACQ.TRADE_STATUS_ERROR", "交易状态不合法"),
    "closed": ("ACQ.TRADE_HAS_CLOSE", "交易已经关闭"),
    "exceeds": ("ACQ.REFUND_AMT_NOT_EQUAL_TOTAL", "退款金额超限"),
    "not enough": ("ACQ.SELLER_BALANCE_NOT_ENOUGH", "商户账户余额不足"),
    "no bill": ("isp.bill_not_exist", "账单不存在"),
}
_PRECREATE = "alipay.trade.precreate"


def gateway(request: HttpRequest) -> HttpResponse:
    given: dict[str, str] = {**request.GET.dict(), **request.POST.dict()}
    method = given.get("method", "")
    request.changes_something = method in _CHANGING  # type: ignore[attr-defined]
    problem = why_not_genuine(given)
    base_url = request.build_absolute_uri("/").rstrip("/")
    if method == "alipay.trade.page.pay":
        if problem is not None:
            return HttpResponse(f"调试错误 {problem}", status=400, content_type="text/plain; charset=utf-8")
        return _page_pay(Call(content=json.loads(given["biz_content"]), given=given, base_url=base_url))
    return signed_answer(method, _business(method, given, problem, base_url), given)


def _business(method: str, given: Mapping[str, str], problem: str | None, base_url: str) -> dict[str, Any]:
    """Build the signed member: a result, or the reason for none."""
    if problem is not None:
        return {"code": "40002", "msg": "Invalid Arguments", "sub_code": problem, "sub_msg": "验签出错"}
    if method not in _METHODS:
        return {"code": "40001", "msg": "Missing Method", "sub_code": "isv.invalid-method", "sub_msg": method}
    try:
        call = Call(content=json.loads(given["biz_content"]), given=given, base_url=base_url)
        return {"code": "10000", "msg": "Success", **_METHODS[method](call)}
    except trades.Refused as refused:
        code, message = _REFUSALS[refused.reason]
        if method == _PRECREATE and refused.reason == "paid":
            code, message = "ACQ.TRADE_HAS_SUCCESS", "交易已被支付"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        code, message = "ACQ.INVALID_PARAMETER", f"{type(error).__name__}: {error}"
    return {"code": "40004", "msg": "Business Failed", "sub_code": code, "sub_msg": message}


def _page_pay(call: Call) -> HttpResponse:
    """Open the trade as the shopper arrives, and show its page."""
    try:
        trades.open_trade(channel="alipay", **wanted_trade(call))
    except trades.Refused as refused:
        if refused.reason == "used":
            return HttpResponse("交易信息被篡改", status=400, content_type="text/plain; charset=utf-8")
    return redirect(f"/pay/{call.content['out_trade_no']}")


def _precreate(call: Call) -> dict[str, Any]:
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


def _close(call: Call) -> dict[str, Any]:
    trade = _trade_of(call)
    if trade["state"] == "CLOSED":
        raise trades.Refused("closed")
    trades.close(channel="alipay", out_trade_no=trade["out_trade_no"])
    return {"trade_no": trade["transaction_id"], "out_trade_no": trade["out_trade_no"]}


def _refund(call: Call) -> dict[str, Any]:
    trade = _trade_of(call)
    if faults.current()["not_enough"]:
        raise trades.Refused("not enough")
    made, moved = trades.refund(
        channel="alipay",
        out_trade_no=trade["out_trade_no"],
        out_refund_no=call.content.get("out_request_no") or trade["out_trade_no"],
        amount_minor=money.from_decimal(str(call.content["refund_amount"]), "CNY"),
    )
    after = _trade_of(call)
    return {
        "trade_no": trade["transaction_id"],
        "out_trade_no": trade["out_trade_no"],
        "buyer_logon_id": "san***@sandbox.example",
        "fund_change": "Y" if moved else "N",
        "refund_fee": yuan(after["refunded_minor"]),
        "gmt_refund_pay": china_time(made["created_at"]),
    }


def _refund_query(call: Call) -> dict[str, Any]:
    trade = _trade_of(call)
    made = trades.find_refund(trade["out_trade_no"], call.content["out_request_no"])
    document = {"trade_no": trade["transaction_id"], "out_trade_no": trade["out_trade_no"]}
    if made is None:
        return document  # as the platform does: success, and nothing said of a refund
    if "gmt_refund_pay" in call.content.get("query_options", []):
        document["gmt_refund_pay"] = china_time(made["created_at"])
    return document | {
        "out_request_no": made["out_refund_no"],
        "refund_amount": yuan(made["amount_minor"]),
        "total_amount": yuan(trade["charged_minor"]),
        "refund_status": "REFUND_SUCCESS",
    }


_METHODS: dict[str, Callable[[Call], dict[str, Any]]] = {
    _PRECREATE: _precreate,
    "alipay.trade.query": lambda call: _trade_document(_trade_of(call)),
    "alipay.trade.close": _close,
    "alipay.trade.refund": _refund,
    "alipay.trade.fastpay.refund.query": _refund_query,
    "alipay.data.dataservice.bill.downloadurl.query": bill.query,
}
_CHANGING = frozenset({_PRECREATE, "alipay.trade.close", "alipay.trade.refund"})


def notification(notice: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Build headers and the signed form of one copy."""
    trade, refund = notice["trade"], notice["refund"]
    settings = state.keys().settings
    parameters = {
        "notify_time": china_time(time.time()),
        "notify_type": "trade_status_sync",
        "notify_id": notice["id"],
        "charset": "utf-8",
        "version": "1.0",
        "app_id": settings["ALIPAY_APP_ID"],
        "auth_app_id": settings["ALIPAY_APP_ID"],
        "seller_id": trade["seller"] or settings["ALIPAY_SELLER_ID"],
        "buyer_id": "2088000000000001",
        "subject": trade["description"],
        "out_trade_no": trade["out_trade_no"],
        "trade_no": trade["transaction_id"],
        "trade_status": _status(trade),
        "total_amount": yuan(trade["charged_minor"]),
        "receipt_amount": yuan(trade["charged_minor"]),
        "buyer_pay_amount": yuan(trade["charged_minor"]),
        "gmt_create": china_time(trade["created_at"]),
        "gmt_payment": china_time(trade["paid_at"]),
    }
    if refund is not None:
        parameters |= {
            "refund_fee": yuan(trade["refunded_minor"]),
            "gmt_refund": china_time(refund["created_at"]),
            "out_biz_no": refund["out_refund_no"],
        }
    form = urlencode(signed_form(parameters, cert_sn=trade.get("signed_with", "")))
    return {"Content-Type": "application/x-www-form-urlencoded"}, form.encode()


def return_parameters(trade: sqlite3.Row) -> dict[str, str]:
    """Build what the shopper's browser carries back; signed, and still no proof of payment."""
    settings = state.keys().settings
    parameters = {
        "charset": "utf-8",
        "out_trade_no": trade["out_trade_no"],
        "method": "alipay.trade.page.pay.return",
        "total_amount": yuan(trade["charged_minor"]),
        "trade_no": trade["transaction_id"],
        "auth_app_id": settings["ALIPAY_APP_ID"],
        "version": "1.0",
        "app_id": settings["ALIPAY_APP_ID"],
        "seller_id": settings["ALIPAY_SELLER_ID"],
        "timestamp": china_time(time.time()),
    }
    return signed_form(parameters, cert_sn=trade["signed_with"])


def _trade_of(call: Call) -> sqlite3.Row:
    if number := call.content.get("out_trade_no"):
        trade = state.store().trade("alipay", number)
    else:
        trade = state.store().trade_where("transaction_id", call.content["trade_no"])
    if trade is None or trade["seller"]:  # another seller's trades are not ours to ask for
        raise trades.Refused("not_found")
    return trade


def _trade_document(trade: sqlite3.Row) -> dict[str, Any]:
    document = {
        "trade_no": trade["transaction_id"],
        "out_trade_no": trade["out_trade_no"],
        "buyer_logon_id": "san***@sandbox.example",
        "trade_status": _status(trade),
        "total_amount": yuan(trade["charged_minor"] or trade["amount_minor"]),
    }
    if trade["paid_at"]:
        document["send_pay_date"] = china_time(trade["paid_at"])
    return document


def _status(trade: Any) -> str:
    if trade["state"] == "SUCCESS":
        return "TRADE_CLOSED" if trade["refunded_minor"] == trade["charged_minor"] else "TRADE_SUCCESS"
    return "TRADE_CLOSED" if trade["state"] == "CLOSED" or trades.expired(trade) else "WAIT_BUYER_PAY"
