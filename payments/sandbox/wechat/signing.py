"""WeChat's signatures: required of every request, made for every answer."""

import json
import re
import secrets
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse

from idempotency.webhooks.verifiers import TOLERANCE_SECONDS
from payments.providers import rsa
from payments.providers.wechat.signing import AUTHORIZATION_SCHEME, answer_message, request_message
from payments.sandbox import state, trades
from payments.sandbox.wechat.certificates import signing

_PART = re.compile(r'(\w+)="([^"]*)"')

_REFUSALS = {
    "not_found": (404, "ORDER_NOT_EXIST", "order does not exist"),
    "used": (403, "OUT_TRADE_NO_USED", "the number stands for another request"),
    "paid": (400, "ORDERPAID", "order is paid"),
    "closed": (400, "ORDER_CLOSED", "order is closed"),
    "exceeds": (400, "INVALID_REQUEST", "refund exceeds what was paid"),
}

View = Callable[..., HttpResponse]


class Error(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def merchant_only(view: View) -> View:
    """Require our merchant's signature, and sign the answer unless it is a file."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            _verify(request)
            document = view(request, **kwargs)
            if isinstance(document, HttpResponse):
                return document
            status, body = (204, b"") if document is None else (200, to_json(document))
        except trades.Refused as refused:
            status, code, message = _REFUSALS[refused.reason]
            body = to_json({"code": code, "message": message})
        except Error as error:
            status, body = error.status, to_json({"code": error.code, "message": error.message})
        except (KeyError, TypeError, ValueError) as error:
            status, body = 400, to_json({"code": "PARAM_ERROR", "message": f"{type(error).__name__}: {error}"})
        headers = signature_headers(body, with_key=request.headers.get("Wechatpay-Serial", ""))
        headers["Request-ID"] = secrets.token_hex(8)
        return HttpResponse(body, status=status, content_type="application/json", headers=headers)

    return wrapper


def signature_headers(body: bytes, *, with_key: str) -> dict[str, str]:
    """Sign with the public-key pair if the caller named it, else with the current certificate."""
    keys = state.keys()
    certificate = signing()
    public_mode = with_key == keys.public_key_id
    timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
    message = answer_message(timestamp=timestamp, nonce=nonce, body=body)
    return {
        "Wechatpay-Timestamp": timestamp,
        "Wechatpay-Nonce": nonce,
        "Wechatpay-Signature": rsa.sign(message, keys.platform_public if public_mode else certificate.key),
        "Wechatpay-Serial": keys.public_key_id if public_mode else certificate.serial,
        "Wechatpay-Signature-Type": AUTHORIZATION_SCHEME,
    }


def to_json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _verify(request: HttpRequest) -> None:
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    given = dict(_PART.findall(rest))
    keys = state.keys()
    expected = (AUTHORIZATION_SCHEME, keys.settings["WECHAT_MCH_ID"], keys.settings["WECHAT_MCH_SERIAL"])
    if (scheme, given.get("mchid"), given.get("serial_no", "").upper()) != expected:
        raise Error(401, "SIGN_ERROR", "unknown scheme, merchant or certificate serial")
    timestamp = given.get("timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) >= TOLERANCE_SECONDS:
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
