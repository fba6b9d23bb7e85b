"""WeChat's documents of trades and refunds."""

import sqlite3
from datetime import datetime
from typing import Any

from payments.providers.documents import CHINA
from payments.sandbox import faults, state, trades

SHOPPER = "oSandboxShopper000000000000"
_DESCRIBED = {"NOTPAY": "订单未支付", "CLOSED": "订单已关闭", "SUCCESS": "支付成功", "REFUND": "转入退款"}


def trade_document(trade: sqlite3.Row | dict[str, Any]) -> dict[str, Any]:
    settings = state.keys().settings
    name = "CLOSED" if trade["state"] == "NOTPAY" and trades.expired(trade) else trade["state"]
    if trade["refunded_minor"]:
        name = "REFUND"
    document: dict[str, Any] = {
        "appid": settings["WECHAT_APP_ID"],
        "mchid": trade["seller"] or settings["WECHAT_MCH_ID"],
        "out_trade_no": trade["out_trade_no"],
        "trade_state": name,
        "trade_state_desc": _DESCRIBED[name],
        "amount": {"total": trade["amount_minor"], "currency": trade["currency"]},
    }
    if trade["state"] == "SUCCESS":
        charged = trade["charged_minor"]
        trade_type, openid = opened_by(trade["out_trade_no"])
        document |= {
            "transaction_id": trade["transaction_id"],
            "trade_type": trade_type,
            "bank_type": "OTHERS",
            "attach": "",
            "success_time": china_time(trade["paid_at"]),
            "payer": {"openid": openid},
            "amount": {
                "total": charged,
                "payer_total": charged,
                "currency": trade["currency"],
                "payer_currency": trade["currency"],
            },
        }
    return document


def refund_document(made: sqlite3.Row) -> dict[str, Any]:
    """Build a refund, for its call or query."""
    trade = state.store().trade("wechat", made["out_trade_no"])
    assert trade is not None  # noqa: S101  a refund refers to its trade
    return _refund_part(trade, made) | {
        "status": _refund_status(),
        "create_time": china_time(made["created_at"]),
        "channel": "ORIGINAL",
        "funds_account": "AVAILABLE",
    }


def refund_notice(trade: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """Build a refund, for its notification."""
    mchid = state.keys().settings["WECHAT_MCH_ID"]
    return {"mchid": mchid, "refund_status": _refund_status()} | _refund_part(trade, made)


def opened_by(out_trade_no: str) -> tuple[str, str]:
    """Return the trade's type and the payer's openid."""
    order = state.store().kept_of(f"wechat {out_trade_no}")
    return order.get("trade_type", "NATIVE"), order.get("openid") or SHOPPER


def china_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, CHINA).isoformat(timespec="seconds")


def _refund_status() -> str:
    return "ABNORMAL" if faults.current()["refund_abnormal"] else "SUCCESS"


def _refund_part(trade: Any, made: Any) -> dict[str, Any]:
    amount, total = made["amount_minor"], trade["charged_minor"]
    done = {"success_time": china_time(made["created_at"])} if _refund_status() == "SUCCESS" else {}
    return done | {
        "refund_id": made["refund_id"],
        "out_refund_no": made["out_refund_no"],
        "transaction_id": trade["transaction_id"],
        "out_trade_no": trade["out_trade_no"],
        "user_received_account": "支付用户零钱",
        "amount": {
            "total": total,
            "refund": amount,
            "payer_total": total,
            "payer_refund": amount,
            "currency": trade["currency"],
        },
    }
