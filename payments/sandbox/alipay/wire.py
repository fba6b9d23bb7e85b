"""Alipay's wire: signatures in key and certificate mode, and the form of values.

A request that names certificates is of certificate mode: both SNs are checked, its answer names ours, and so do
the notifications of a trade that it opened.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpResponse

from payments import money
from payments.providers import documents, rsa
from payments.providers.alipay.signing import CERT_SN, signed_text
from payments.providers.documents import CHINA, TIME_FORMAT
from payments.sandbox import state


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Genuine request: its decoded ``biz_content``, and every parameter."""

    content: dict[str, Any]
    given: Mapping[str, str]
    base_url: str


def why_not_genuine(given: Mapping[str, str]) -> str | None:
    """Return the platform's code for a wrong signature; None for a genuine one."""
    keys = state.keys()
    if given.get("app_id") != keys.settings["ALIPAY_APP_ID"]:
        return "isv.invalid-app-id"
    if given.get("sign_type") != "RSA2":
        return "isv.invalid-signature-type"
    if not rsa.verifies(signed_text(given), given.get("sign", ""), keys.app.public_key()):
        return "isv.invalid-signature"
    certificates = keys.alipay_certificates
    for name, held in (("app_cert_sn", certificates.app_sn), ("alipay_root_cert_sn", certificates.root_sn)):
        if certificate_mode(given) and given.get(name) != held:
            return f"isv.invalid-{name.replace('_', '-')}"
    return None


def certificate_mode(given: Mapping[str, str]) -> bool:
    """Return whether the caller names a certificate."""
    return "app_cert_sn" in given or "alipay_root_cert_sn" in given


def certificate_for(given: Mapping[str, str]) -> str:
    """Return the SN that notifications of this request's trade name; empty in key mode."""
    return state.keys().alipay_certificates.platform_sn if certificate_mode(given) else ""


def signed_answer(method: str, document: dict[str, Any], given: Mapping[str, str]) -> HttpResponse:
    """Sign the answer to `method`, in the caller's mode."""
    raw = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    cert_sn = certificate_for(given)
    named = f'"{CERT_SN}":"{cert_sn}",' if cert_sn else ""
    name = method.replace(".", "_") + "_response"
    body = f'{{"{name}":{raw},{named}"sign":"{_sign(raw.encode(), cert_sn)}"}}'
    return HttpResponse(body, content_type="application/json; charset=utf-8")


def signed_form(parameters: dict[str, str], *, cert_sn: str = "") -> dict[str, str]:
    """Sign the parameters of a notification, in the mode of its trade."""
    named = parameters | ({CERT_SN: cert_sn} if cert_sn else {})
    return named | {"sign": _sign(signed_text(named), cert_sn), "sign_type": "RSA2"}


def _sign(message: bytes, cert_sn: str) -> str:
    keys = state.keys()
    return rsa.sign(message, keys.alipay_certificates.platform if cert_sn else keys.alipay)


def wanted_trade(call: Call) -> dict[str, Any]:
    """Read the columns of the trade that `call` asks for."""
    content, expires = call.content, call.content.get("time_expire")
    return {
        "out_trade_no": content["out_trade_no"],
        "amount_minor": money.from_decimal(str(content["total_amount"]), "CNY"),
        "description": content["subject"],
        "notify_url": call.given.get("notify_url", ""),
        "return_url": call.given.get("return_url", ""),
        "signed_with": certificate_for(call.given),
        "expires_at": documents.china_time(expires).timestamp() if expires else None,
    }


def yuan(amount_minor: int) -> str:
    return money.to_decimal(amount_minor, "CNY")


def china_time(seconds: float) -> str:
    """Write a time in China's zone, without naming it."""
    return datetime.fromtimestamp(seconds, CHINA).strftime(TIME_FORMAT)
