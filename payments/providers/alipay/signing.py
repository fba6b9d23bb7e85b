"""Alipay's RSA2 signatures: texts that they cover, and their verification.

Source: Alipay open platform, "signing" and "asynchronous notification" (read 2026-11).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from payments.errors import NotificationMalformed, OutcomeUnknown, SignatureInvalid
from payments.providers import rsa
from payments.providers.alipay.keys import Trust
from payments.providers.documents import UNREADABLE

_NOT_NOTIFIED = frozenset({"sign", "sign_type"})
CERT_SN = "alipay_cert_sn"

# an application may have its notifications in another encoding than we ask in
_ENCODINGS = {"utf-8": "utf-8", "gbk": "gbk", "gb2312": "gbk", "gb18030": "gb18030"}


def signed_text(
    parameters: Mapping[str, str], *, without: frozenset[str] = frozenset({"sign"}), encoding: str = "utf-8"
) -> bytes:
    """Build the text that RSA2 covers: sorted ``name=value`` without empty ones, by ``&``.

    A request's covers all but ``sign``, a notification's neither that nor ``sign_type``.
    """
    pairs = sorted((name, value) for name, value in parameters.items() if name not in without and value)
    return "&".join(f"{name}={value}" for name, value in pairs).encode(encoding)


def signed_member(answer: str, name: str) -> str:
    """Cut the value of the top-level member `name` out of `answer`, or raise ValueError.

    The platform signs those very characters, so decoding and encoding again would not do. Braces, quotes and
    escapes inside strings are respected.
    """
    start = answer.index(f'"{name}"')
    start = answer.index(":", start + len(name) + 2) + 1
    while answer[start : start + 1].isspace():
        start += 1
    _, length = json.JSONDecoder().raw_decode(answer[start:])
    return answer[start : start + length]


def any_verifies(message: bytes, signature: str, keys: Iterable[RSAPublicKey]) -> bool:
    return any(rsa.verifies(message, signature, key) for key in keys)


def genuine_answer(content: bytes, method: str, trust: Trust, *, now: float) -> dict[str, Any]:
    """Verify and decode the gateway's answer to `method`, a result or an error.

    Exactly the signed bytes are read. Raises OutcomeUnknown for any others.
    """
    name = method.replace(".", "_") + "_response"
    try:
        text = content.decode()
        name = name if f'"{name}"' in text else "error_response"
        raw, whole = signed_member(text, name), json.loads(text)
        answer, sign, cert_sn = json.loads(raw), whole.get("sign", ""), whole.get(CERT_SN, "")
    except UNREADABLE:
        raise OutcomeUnknown("the answer is not of the documented shape") from None
    if not isinstance(answer, dict) or not isinstance(sign, str) or not isinstance(cert_sn, str):
        raise OutcomeUnknown("the answer is not an object and its signature")
    if not any_verifies(raw.encode(), sign, trust.keys(cert_sn, now=now)):
        raise OutcomeUnknown("the answer is not signed by the platform")
    return answer


def genuine_form(body: bytes, trust: Trust, *, app_id: str, now: float) -> dict[str, str]:
    """Verify and decode a notification that Alipay sent for our application."""
    try:
        pairs, encoding = _decoded(body)
    except ValueError:
        raise NotificationMalformed("not a form") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise SignatureInvalid("a parameter is given twice")
    if given.get("sign_type") != "RSA2":
        raise SignatureInvalid("sign_type is not RSA2")
    if not _form_verifies(given, trust, now=now, encoding=encoding):
        raise SignatureInvalid("the signature does not verify")
    if given.get("app_id") != app_id:
        raise SignatureInvalid("for another application")
    return given


def _decoded(body: bytes) -> tuple[list[tuple[str, str]], str]:
    """Decode a form by its ``charset``; returns the pairs and the encoding. Raises ValueError.

    Names and ``charset`` are ASCII, so it can be read ahead of the rest.
    """
    raw = parse_qsl(
        body.decode("latin-1"), keep_blank_values=True, strict_parsing=True, max_num_fields=200, encoding="latin-1"
    )
    charset = dict(raw).get("charset", "").lower() or "utf-8"
    if charset not in _ENCODINGS:
        raise ValueError(f"the charset {charset!r} is none of {', '.join(_ENCODINGS)}")
    encoding = _ENCODINGS[charset]
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in raw]
    return [(name.decode(encoding), value.decode(encoding)) for name, value in pairs], encoding


def _form_verifies(given: Mapping[str, str], trust: Trust, *, now: float, encoding: str) -> bool:
    """Verify a form's signature by a key of `trust`.

    In certificate mode the form may name a certificate, which must be one that we hold. The documents leave open
    whether the signature covers that name, and independent SDKs disagree; both are accepted, because the name
    only chooses one of the trusted keys.
    """
    named, sign = given.get(CERT_SN) or None, given.get("sign", "")
    keys = trust.keys(named, now=now)
    if any_verifies(signed_text(given, without=_NOT_NOTIFIED, encoding=encoding), sign, keys):
        return True
    return bool(named and trust.parameters) and any_verifies(
        signed_text(given, without=_NOT_NOTIFIED | {CERT_SN}, encoding=encoding), sign, keys
    )
