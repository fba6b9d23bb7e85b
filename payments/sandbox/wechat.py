"""WeChat Pay v3 as the platform speaks it: verifies the merchant's signature, signs every answer.

Paths and documents: WeChat Pay API v3 documentation (read 2026-11). Reached under ``/wechat``; signatures cover
the path from ``/v3`` on, as at the real address.
"""

import json
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import wraps
from typing import Any

from cryptography import x509
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from payments.providers import rsa
from payments.providers.wechat import AUTHORIZATION_SCHEME, MAX_SKEW_SECONDS, answer_message, request_message
from payments.sandbox import state, trades
from payments.sandbox.store import expired

CHINA = timezone(timedelta(hours=8))
_PART = re.compile(r'(\w+)="([^"]*)"')
_NUMBER = re.compile(r"[0-9A-Za-z_\-|*]{6,32}")

_REFUSALS = {
    "not_found": (404, "ORDER_NOT_EXIST", "order does not exist"),
    "used": (403, "OUT_TRADE_NO_USED", "the number stands for another request"),
    "paid": (400, "ORDERPAID", "order is paid"),
    "closed": (400, "ORDER_CLOSED", "order is closed"),
    "exceeds": (400, "INVALID_REQUEST", "refund exceeds what was paid"),
}

View = Callable[..., HttpResponse]


class Error(Exception):
    """An error answer of the platform: status, code, message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def merchant_only(view: View) -> View:
    """Let only requests through that our merchant signed; sign whatever is answered."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            _verify(request)
            document = view(request, **kwargs)
            status, body = (204, b"") if document is None else (200, _json(document))
        except trades.Refused as refused:
            status, code, message = _REFUSALS[refused.reason]
            body = _json({"code": code, "message": message})
        except Error as error:
            status, body = error.status, _json({"code": error.code, "message": error.message})
        except (KeyError, TypeError, ValueError) as error:
            status, body = 400, _json({"code": "PARAM_ERROR", "message": f"{type(error).__name__}: {error}"})
        return _signed(status, body, with_key=request.headers.get("Wechatpay-Serial", ""))

    return wrapper


def _verify(request: HttpRequest) -> None:
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    given = dict(_PART.findall(rest))
    keys = state.keys()
    expected = (AUTHORIZATION_SCHEME, keys.settings["WECHAT_MCH_ID"], keys.settings["WECHAT_MCH_SERIAL"])
    if (scheme, given.get("mchid"), given.get("serial_no", "").upper()) != expected:
        raise Error(401, "SIGN_ERROR", "unknown scheme, merchant or certificate serial")
    timestamp = given.get("timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) >= MAX_SKEW_SECONDS:
        raise Error(401, "SIGN_ERROR", "stale time stamp")
    message = request_message(
        method=request.method or "",
        target=request.get_full_path().removeprefix("/wechat"),
        timestamp=timestamp,
        nonce=given.get("nonce_str", ""),
        body=request.body.decode(),
    )
    if not rsa.verifies(message, given.get("signature", ""), keys.merchant.public_key()):
        raise Error(401, "SIGN_ERROR", "the signature does not verify")


def _signature_headers(body: bytes, *, with_key: str) -> dict[str, str]:
    """Signed with the public-key pair if the caller named it, else with the certificate's key."""
    keys = state.keys()
    public_mode = with_key == keys.public_key_id
    timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
    message = answer_message(timestamp=timestamp, nonce=nonce, body=body)
    return {
        "Wechatpay-Timestamp": timestamp,
        "Wechatpay-Nonce": nonce,
        "Wechatpay-Signature": rsa.sign(message, keys.platform_public if public_mode else keys.platform),
        "Wechatpay-Serial": keys.public_key_id if public_mode else keys.platform_serial,
        "Wechatpay-Signature-Type": AUTHORIZATION_SCHEME,
    }


def _signed(status: int, body: bytes, *, with_key: str) -> HttpResponse:
    headers = _signature_headers(body, with_key=with_key) | {"Request-ID": secrets.token_hex(8)}
    return HttpResponse(body, status=status, content_type="application/json", headers=headers)


@require_POST
@merchant_only
def native(request: HttpRequest) -> Any:
    """``POST /v3/pay/transactions/native``"""
    request.changes_something = True  # type: ignore[attr-defined]
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
    trade = trades.open_trade(
        channel="wechat",
        out_trade_no=wanted["out_trade_no"],
        amount_minor=amount["total"],
        description=wanted["description"],
        notify_url=wanted["notify_url"],
        signed_with=request.headers.get("Wechatpay-Serial", ""),
        expires_at=datetime.fromisoformat(expires).timestamp() if expires else None,
    )
    return {"code_url": f"weixin://wxpay/bizpayurl?pr={trade['prepay']}"}


@require_GET
@merchant_only
def query(request: HttpRequest, *, out_trade_no: str) -> Any:
    """``GET /v3/pay/transactions/out-trade-no/{out_trade_no}``"""
    if request.GET.get("mchid") != state.keys().settings["WECHAT_MCH_ID"]:
        raise Error(400, "MCH_NOT_EXISTS", "unknown mchid")
    trade = state.store().trade("wechat", out_trade_no)
    if trade is None:
        raise trades.Refused("not_found")
    return _trade_document(trade)


@require_POST
@merchant_only
def close(request: HttpRequest, *, out_trade_no: str) -> Any:
    """``POST /v3/pay/transactions/out-trade-no/{out_trade_no}/close``"""
    request.changes_something = True  # type: ignore[attr-defined]
    _must_be_ours(json.loads(request.body)["mchid"])
    trades.close(channel="wechat", out_trade_no=out_trade_no)


@require_POST
@merchant_only
def refund(request: HttpRequest) -> Any:
    """``POST /v3/refund/domestic/refunds``"""
    request.changes_something = True  # type: ignore[attr-defined]
    wanted = json.loads(request.body)
    out_trade_no = wanted.get("out_trade_no") or _number_of(wanted["transaction_id"])
    trade = state.store().trade("wechat", out_trade_no)
    if trade is None or trade["state"] != "SUCCESS":
        raise Error(404, "RESOURCE_NOT_EXISTS", "no paid order of this number")
    if wanted["amount"]["total"] != trade["charged_minor"]:
        raise Error(400, "INVALID_REQUEST", "amount.total is not the order's")
    if not isinstance(wanted["amount"]["refund"], int) or wanted["amount"]["refund"] <= 0:
        raise ValueError("amount.refund must be fen above zero")
    made, _ = trades.refund(
        channel="wechat",
        out_trade_no=out_trade_no,
        out_refund_no=wanted["out_refund_no"],
        amount_minor=wanted["amount"]["refund"],
    )
    return _refund_document(made)


@require_GET
@merchant_only
def query_refund(request: HttpRequest, *, out_refund_no: str) -> Any:
    """``GET /v3/refund/domestic/refunds/{out_refund_no}``"""
    found = state.store().rows("SELECT * FROM refunds WHERE out_refund_no = ?", out_refund_no)
    if not found:
        raise Error(404, "RESOURCE_NOT_EXISTS", "no refund of this number")
    return _refund_document(found[0])


@require_GET
@merchant_only
def certificates(request: HttpRequest) -> Any:
    """``GET /v3/certificates``: the platform's certificate, encrypted for the merchant."""
    keys = state.keys()
    certificate = x509.load_pem_x509_certificate(keys.certificate.encode())
    return {
        "data": [
            {
                "serial_no": keys.platform_serial,
                "effective_time": certificate.not_valid_before_utc.isoformat(timespec="seconds"),
                "expire_time": certificate.not_valid_after_utc.isoformat(timespec="seconds"),
                "encrypt_certificate": _encrypted(keys.certificate.encode(), associated_data="certificate"),
            }
        ]
    }


def notification(told: dict[str, Any], *, signed_with: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of one copy, encrypted and signed anew."""
    if told["event"] == "paid":
        event, kind, content = "TRANSACTION.SUCCESS", "transaction", _trade_document(told["trade"])
    else:
        event, kind = "REFUND.SUCCESS", "refund"
        content = _refund_notice(told["trade"], told["refund"])
    body = _json(
        {
            "id": told["id"][:36],
            "create_time": _time(told["created_at"]),
            "resource_type": "encrypt-resource",
            "event_type": event,
            "summary": "支付成功" if told["event"] == "paid" else "退款成功",
            "resource": {
                "original_type": kind,
                **_encrypted(_json(content), associated_data=kind),
            },
        }
    )
    headers = _signature_headers(body, with_key=signed_with) | {"Content-Type": "application/json"}
    return headers, body


def _encrypted(plain: bytes, *, associated_data: str) -> dict[str, str]:
    nonce = secrets.token_hex(6)
    return {
        "algorithm": "AEAD_AES_256_GCM",
        "ciphertext": rsa.encrypt(
            plain,
            key=state.keys().settings["WECHAT_API_V3_KEY"].encode(),
            nonce=nonce.encode(),
            associated_data=associated_data.encode(),
        ),
        "associated_data": associated_data,
        "nonce": nonce,
    }


def _trade_document(trade: sqlite3.Row | dict[str, Any]) -> dict[str, Any]:
    settings = state.keys().settings
    states = {
        "NOTPAY": ("NOTPAY", "订单未支付"),
        "CLOSED": ("CLOSED", "订单已关闭"),
        "SUCCESS": ("SUCCESS", "支付成功"),
    }
    name, described = states[trade["state"]]
    if trade["state"] == "NOTPAY" and expired(trade):  # type: ignore[arg-type]
        name, described = states["CLOSED"]
    document: dict[str, Any] = {
        "appid": settings["WECHAT_APP_ID"],
        "mchid": settings["WECHAT_MCH_ID"],
        "out_trade_no": trade["out_trade_no"],
        "trade_state": "REFUND" if trade["refunded_minor"] else name,
        "trade_state_desc": "转入退款" if trade["refunded_minor"] else described,
        "amount": {"total": trade["amount_minor"], "currency": "CNY"},
    }
    if trade["state"] == "SUCCESS":
        charged = trade["charged_minor"]
        document |= {
            "transaction_id": trade["transaction_id"],
            "trade_type": "NATIVE",
            "bank_type": "OTHERS",
            "attach": "",
            "success_time": _time(trade["paid_at"]),
            "payer": {"openid": "oSandboxShopper000000000000"},
            "amount": {"total": charged, "payer_total": charged, "currency": "CNY", "payer_currency": "CNY"},
        }
    return document


def _refund_document(made: sqlite3.Row) -> dict[str, Any]:
    trade = state.store().trade("wechat", made["out_trade_no"])
    assert trade is not None  # noqa: S101  a refund refers to its trade
    return _refund_part(trade, made) | {
        "status": "SUCCESS",
        "create_time": _time(made["created_at"]),
        "channel": "ORIGINAL",
        "funds_account": "AVAILABLE",
    }


def _refund_notice(trade: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    mchid = state.keys().settings["WECHAT_MCH_ID"]
    return {"mchid": mchid, "refund_status": "SUCCESS"} | _refund_part(trade, made)


def _refund_part(trade: Any, made: Any) -> dict[str, Any]:
    amount, total = made["amount_minor"], trade["charged_minor"]
    return {
        "refund_id": made["refund_id"],
        "out_refund_no": made["out_refund_no"],
        "transaction_id": trade["transaction_id"],
        "out_trade_no": trade["out_trade_no"],
        "user_received_account": "支付用户零钱",
        "success_time": _time(made["created_at"]),
        "amount": {
            "total": total,
            "refund": amount,
            "payer_total": total,
            "payer_refund": amount,
            "currency": "CNY",
        },
    }


def _number_of(transaction_id: str) -> str:
    found = state.store().rows("SELECT out_trade_no FROM trades WHERE transaction_id = ?", transaction_id)
    if not found:
        raise Error(404, "RESOURCE_NOT_EXISTS", "no order of this transaction")
    number: str = found[0]["out_trade_no"]
    return number


def _must_be_ours(mchid: str, appid: str | None = None) -> None:
    settings = state.keys().settings
    if mchid != settings["WECHAT_MCH_ID"]:
        raise Error(400, "MCH_NOT_EXISTS", "unknown mchid")
    if appid is not None and appid != settings["WECHAT_APP_ID"]:
        raise Error(400, "APPID_MCHID_NOT_MATCH", "unknown appid")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, CHINA).isoformat(timespec="seconds")


def _json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
