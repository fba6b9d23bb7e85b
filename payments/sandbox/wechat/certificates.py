"""Rotation of WeChat's platform keys, and the list of their certificates."""

import json
import secrets
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from django.http import HttpRequest, JsonResponse

from payments.providers import rsa
from payments.providers.documents import CHINA
from payments.sandbox import state
from payments.sandbox.keys import make_platform_pair

_rotating = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate (PEM) of the platform and its key."""

    serial: str
    certificate: str
    key: RSAPrivateKey


def signing() -> Pair:
    return _signing(_pairs())


def rotate(*, announce: bool) -> Pair:
    """Let the announced pair sign, else a new one; with `announce`, only list a new one."""
    with _rotating:
        pairs = _pairs()
        if _signing(pairs) is pairs[-1]:
            make_platform_pair(_folder(), name=f"{len(pairs):04}")
        newest = _pairs()[-1]
        if not announce:
            draft = _folder() / "signing.new"
            draft.write_text(newest.serial)
            draft.rename(_folder() / "signing")
        return newest


def listed(request: HttpRequest) -> dict[str, Any]:
    """List the newest certificate and the one before it, encrypted for the merchant."""
    return {"data": [_document(pair) for pair in reversed(_pairs()[-2:])]}


def control_rotate(request: HttpRequest) -> JsonResponse:
    """Change the platform's certificate, or announce it."""
    try:
        wanted = json.loads(request.body)
        channel, announce = wanted["channel"], wanted.get("announce", False)
    except (ValueError, KeyError, TypeError, AttributeError):
        channel, announce = None, None
    if channel != "wechat" or not isinstance(announce, bool):
        return JsonResponse({"error": 'send {"channel": "wechat"}, or with it "announce": true'}, status=400)
    return JsonResponse({"serial": rotate(announce=announce).serial})


def encrypted(plain: bytes, *, associated_data: str) -> dict[str, str]:
    """Encrypt for the merchant with its API v3 key."""
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


def _pairs() -> list[Pair]:
    """List all pairs, oldest first: the one made at the start, then those of rotations."""
    keys = state.keys()
    first = Pair(serial=keys.platform_serial, certificate=keys.certificate, key=keys.platform)
    return [first, *(_pair(path) for path in sorted(_folder().glob("*.pem")))]


def _signing(pairs: list[Pair]) -> Pair:
    try:
        serial = (_folder() / "signing").read_text()
    except FileNotFoundError:
        return pairs[0]
    return next(pair for pair in pairs if pair.serial == serial)


def _document(pair: Pair) -> dict[str, Any]:
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
    return {
        "serial_no": pair.serial,
        "effective_time": certificate.not_valid_before_utc.astimezone(CHINA).isoformat(timespec="seconds"),
        "expire_time": certificate.not_valid_after_utc.astimezone(CHINA).isoformat(timespec="seconds"),
        "encrypt_certificate": encrypted(pair.certificate.encode(), associated_data="certificate"),
    }


@lru_cache
def _pair(path: Path) -> Pair:
    certificate = path.read_text()
    serial = x509.load_pem_x509_certificate(certificate.encode()).serial_number
    key = rsa.load_private_key(path.with_suffix(".key").read_bytes())
    return Pair(serial=f"{serial:X}", certificate=certificate, key=key)


def _folder() -> Path:
    return Path(state.keys().settings["WECHAT_PLATFORM_KEYS_DIR"]).parent / "wechat_rotated"
