"""WeChat Pay v3: orders in three ways, refunds, notifications, and the phone's pages.

Reached under ``/wechat``; signatures cover the path from ``/v3`` on, as at the real address. Paths and documents:
WeChat Pay API v3 documentation (read 2026-11).
"""

import json
import re
import sqlite3
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from payments.providers.documents import CHINA
from payments.sandbox import faults, state, trades
from payments.sandbox.wechat.certificates import encrypted
from payments.sandbox.wechat.documents import china_time, refund_document, refund_notice, trade_document
from payments.sandbox.wechat.signing import Error, signature_headers, to_json

_NUMBER = re.compile(r"[0-9A-Za-z_\-|*]{6,32}")
_PREPAY = re.compile(r"wx([0-9]{14})([0-9A-Za-z]{12})[0-9]{8}")
_LINK_LIVES = timedelta(minutes=5)


def native(request: HttpRequest) -> Any:
    trade = _opened(request, trade_type="NATIVE")
    return {"code_url": f"weixin://wxpay/bizpayurl?pr={trade['prepay']}"}


def jsapi(request: HttpRequest) -> Any:
    openid = json.loads(request.body)["payer"]["openid"]
    if not isinstance(openid, str) or not openid:
        raise ValueError("payer.openid must be the shopper's id")
    return {"prepay_id": _prepay_id(_opened(request, trade_type="JSAPI", openid=openid))}


def h5(request: HttpRequest) -> Any:
    scene = json.loads(request.body)["scene_info"]
    if not isinstance(scene["payer_client_ip"], str) or not scene["payer_client_ip"]:
        raise ValueError("scene_info.payer_client_ip must be the shopper's address")
    if scene["h5_info"]["type"] not in ("iOS", "Android", "Wap"):
        raise ValueError("scene_info.h5_info.type is unknown")
    trade = _opened(request, trade_type="MWEB")
    page = request.build_absolute_uri("/wechat/checkmweb")
    return {"h5_url": f"{page}?prepay_id={_prepay_id(trade)}&package={trade['transaction_id'][-10:]}"}


def _opened(request: HttpRequest, *, trade_type: str, openid: str = "") -> sqlite3.Row:
    wanted = json.loads(request.body)
    _must_be_ours(wanted["mchid"], wanted["appid"])
    if not _NUMBER.fullmatch(wanted["out_trade_no"]):
        raise ValueError("out_trade_no must have 6 to 32 characters of 0-9 A-Z a-z _ - | *")
    if not wanted["notify_url"].startswith("http"):
        raise ValueError("notify_url must be absolute")
    amount = wanted["amount"]
    if not isinstance(amount["total"], int) or amount["total"] <= 0 or amount.get("currency", "CNY") != "CNY":
        raise ValueError("amount.total must be fen above zero, in CNY")
    expires = wanted.get("time_expire")
    details = {
        "description": wanted["description"],
        "notify_url": wanted["notify_url"],
        "signed_with": request.headers.get("Wechatpay-Serial", ""),
        "expires_at": datetime.fromisoformat(expires).timestamp() if expires else None,
    }
    order = {"trade_type": trade_type, "openid": openid}
    if state.store().first(f"wechat {wanted['out_trade_no']}", **order) != order:
        raise trades.Refused("used")
    return trades.open_trade(
        channel="wechat", out_trade_no=wanted["out_trade_no"], amount_minor=amount["total"], **details
    )


def _prepay_id(trade: sqlite3.Row) -> str:
    """Make a fresh id of the real one's shape, with the time of the call."""
    return f"wx{datetime.now(CHINA):%Y%m%d%H%M%S}{trade['prepay']}{trade['transaction_id'][-8:]}"


def checkmweb(request: HttpRequest) -> HttpResponse:
    """Follow an ``h5_url``; after the payment the browser goes on to ``redirect_url``."""
    prepay = _PREPAY.fullmatch(request.GET.get("prepay_id", ""))
    trade = state.store().trade_where("prepay", prepay[2]) if prepay else None
    if prepay is None or trade is None:
        raise Http404
    if datetime.now(CHINA) - datetime.strptime(prepay[1], "%Y%m%d%H%M%S").replace(tzinfo=CHINA) > _LINK_LIVES:
        return render(request, "link_over.html", status=410)
    back = request.GET.get("redirect_url", "")
    if back.startswith(("http://", "https://")):
        with state.store().write() as connection:
            change = "UPDATE trades SET return_url = ? WHERE out_trade_no = ?"
            connection.execute(change, [back, trade["out_trade_no"]])
    return redirect(f"/pay/{trade['out_trade_no']}")


def query(request: HttpRequest, *, out_trade_no: str) -> Any:
    _must_be_ours(request.GET.get("mchid", ""))
    return trade_document(trades.existing(out_trade_no, "wechat"))


def close(request: HttpRequest, *, out_trade_no: str) -> Any:
    _must_be_ours(json.loads(request.body)["mchid"])
    if faults.current()["user_paying"]:
        raise Error(202, "USER_PAYING", "the shopper is paying")
    trades.close(channel="wechat", out_trade_no=out_trade_no)


def refund(request: HttpRequest) -> Any:
    if faults.current()["refund_429"]:
        raise Error(429, "FREQUENCY_LIMITED", "too many refunds at once")
    wanted = json.loads(request.body)
    out_trade_no = wanted.get("out_trade_no") or _number_of(wanted["transaction_id"])
    trade = state.store().trade("wechat", out_trade_no)
    if trade is None or trade["state"] != "SUCCESS":
        raise Error(404, "RESOURCE_NOT_EXISTS", "no paid order of this number")
    if wanted["amount"]["total"] != trade["charged_minor"]:
        raise Error(400, "INVALID_REQUEST", "amount.total is not the order's")
    if not isinstance(wanted["amount"]["refund"], int) or wanted["amount"]["refund"] <= 0:
        raise ValueError("amount.refund must be fen above zero")
    if faults.current()["not_enough"]:
        raise Error(403, "NOT_ENOUGH", "the balance is too small")
    made, _ = trades.refund(
        channel="wechat",
        out_trade_no=out_trade_no,
        out_refund_no=wanted["out_refund_no"],
        amount_minor=wanted["amount"]["refund"],
    )
    return refund_document(made)


def query_refund(request: HttpRequest, *, out_refund_no: str) -> Any:
    made = state.store().row("SELECT * FROM refunds WHERE out_refund_no = ?", out_refund_no)
    if made is None:
        raise Error(404, "RESOURCE_NOT_EXISTS", "no refund of this number")
    return refund_document(made)


def notification(notice: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Build headers and body of one copy, encrypted and signed for it."""
    if notice["event"] == "paid":
        event, kind, content = "TRANSACTION.SUCCESS", "transaction", trade_document(notice["trade"])
    else:
        content, kind = refund_notice(notice["trade"], notice["refund"]), "refund"
        event = f"REFUND.{content['refund_status']}"
    body = to_json(
        {
            "id": notice["id"][:36],
            "create_time": china_time(notice["created_at"]),
            "resource_type": "encrypt-resource",
            "event_type": event,
            "summary": "支付成功" if notice["event"] == "paid" else "退款成功",
            "resource": {"original_type": kind, **encrypted(to_json(content), associated_data=kind)},
        }
    )
    headers = signature_headers(body, with_key=notice["trade"].get("signed_with", "")) | {
        "Content-Type": "application/json"
    }
    return headers, body


def _number_of(transaction_id: str) -> str:
    trade = state.store().trade_where("transaction_id", transaction_id)
    if trade is None:
        raise Error(404, "RESOURCE_NOT_EXISTS", "no order of this transaction")
    return str(trade["out_trade_no"])


def _must_be_ours(mchid: str, appid: str | None = None) -> None:
    settings = state.keys().settings
    if mchid != settings["WECHAT_MCH_ID"]:
        raise Error(400, "MCH_NOT_EXISTS", "unknown mchid")
    if appid is not None and appid != settings["WECHAT_APP_ID"]:
        raise Error(400, "APPID_MCHID_NOT_MATCH", "unknown appid")
