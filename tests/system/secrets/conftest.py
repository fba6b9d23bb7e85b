"""The channels with the test's own key files, and notifications signed for them."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from payments.channels import configured
from payments.errors import NotificationMalformed, SignatureInvalid
from payments.providers import rsa
from payments.providers.alipay.signing import signed_text
from payments.providers.wechat.signing import answer_message
from payments.sandbox.issuing import distinguished_name, issue
from payments.sandbox.stripe import documents as stripe_documents
from tests.payments_settings import changed

API_V3_KEY = "a" * 16 + "1" * 16


@cache
def key(number: int, bits: int = 2048) -> RSAPrivateKey:
    """Always the same key for a number within one run."""
    return generate_private_key(public_exponent=65537, key_size=bits)


def private_pem(of: Any, *, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return bytes(of.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))


def public_pem(of: Any) -> bytes:
    return bytes(of.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def certificate(of: RSAPrivateKey, *, begins_days: int = -1, ends_days: int = 365) -> tuple[str, bytes]:
    """(serial, PEM) of a new certificate of the key."""
    name = distinguished_name("Tests")
    made = issue(name, of.public_key(), issuer=name, key=of, days=(begins_days, ends_days))
    return f"{made.serial_number:X}", made.public_bytes(Encoding.PEM)


@dataclass
class Files:
    """The three channels' settings; `put` replaces a file as an operator does, by renaming."""

    folder: Path
    channels: dict[str, dict[str, str]] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(path.name + ".fresh")
        fresh.write_bytes(content)
        fresh.chmod(0o600)
        fresh.rename(path)
        configured.look_now()
        return path


PLATFORM, ALIPAY, MERCHANT, APP = 1, 2, 3, 4


@pytest.fixture
def files(tmp_path: Path, settings: Any) -> Iterator[Files]:
    made = Files(tmp_path)
    serial, platform_pem = certificate(key(PLATFORM))
    made.put(f"platform/{serial}.pem", platform_pem)
    _, own_pem = certificate(key(MERCHANT))
    made.channels = {
        "wechat": {
            "API_URL": "http://127.0.0.1:1",
            "MCH_ID": "1900000001",
            "APP_ID": "wx0000000000000001",
            "MCH_CERT_FILE": str(made.put("merchant_cert.pem", own_pem)),
            "API_V3_KEY_FILE": str(made.put("api_v3_key", API_V3_KEY.encode())),
            "MCH_KEY_FILE": str(made.put("merchant.pem", private_pem(key(MERCHANT)))),
            "PLATFORM_KEYS_DIR": str(tmp_path / "platform"),
        },
        "alipay": {
            "GATEWAY_URL": "http://127.0.0.1:1/gateway.do",
            "APP_ID": "2021000000000001",
            "SELLER_ID": "2088000000000009",
            "APP_KEY_FILE": str(made.put("app.pem", private_pem(key(APP)))),
            "PUBLIC_KEY_FILE": str(made.put("alipay.pem", public_pem(key(ALIPAY)))),
        },
        "stripe": {
            "API_URL": "http://127.0.0.1:1",
            "SECRET_KEY_FILE": str(made.put("stripe_key", b"sk_test_first")),
            "WEBHOOK_SECRET_FILE": str(made.put("stripe_hook", b"whsec_first")),
        },
    }
    settings.PAYMENTS = changed(PROVIDERS=made.channels)
    configured.forget()
    yield made
    configured.forget()


def wechat_notice(
    *, by: RSAPrivateKey, serial: str, api_v3_key: str = API_V3_KEY
) -> tuple[str, dict[str, str], bytes]:
    plain = json.dumps({"mchid": "1900000001"}).encode()
    resource = {
        "algorithm": "AEAD_AES_256_GCM",
        "ciphertext": rsa.encrypt(plain, key=api_v3_key.encode(), nonce=b"n" * 12, associated_data=b"x"),
        "nonce": "n" * 12,
        "associated_data": "x",
    }
    body = json.dumps({"id": "n-1", "event_type": "OTHER", "resource": resource}).encode()
    timestamp = str(int(time.time()))
    headers = {
        "Wechatpay-Timestamp": timestamp,
        "Wechatpay-Nonce": "nonce",
        "Wechatpay-Serial": serial,
        "Wechatpay-Signature": rsa.sign(answer_message(timestamp=timestamp, nonce="nonce", body=body), by),
    }
    return "wechat", headers, body


def alipay_notice(*, by: RSAPrivateKey) -> tuple[str, dict[str, str], bytes]:
    form = {
        "app_id": "2021000000000001",
        "seller_id": "2088000000000009",
        "notify_id": "n-1",
        "notify_type": "trade_status_sync",
        "trade_status": "WAIT_BUYER_PAY",
        "out_trade_no": "1",
    }
    sign = rsa.sign(signed_text(form), by)
    return "alipay", {}, urlencode({**form, "sign_type": "RSA2", "sign": sign}).encode()


def stripe_notice(*, by: str) -> tuple[str, dict[str, str], bytes]:
    event = {"id": "evt_1", "object": "event", "type": "other.event", "livemode": False, "data": {"object": {}}}
    body = json.dumps(event).encode()
    header = stripe_documents.signature(body, secret=by, timestamp=int(time.time()))
    return "stripe", {"Stripe-Signature": header}, body


def is_accepted(notice: tuple[str, dict[str, str], bytes]) -> bool:
    """By the provider that is in use now."""
    channel, headers, body = notice
    try:
        configured.current()[channel].read_notification(headers=headers, body=body, now=datetime.now(UTC))
    except (SignatureInvalid, NotificationMalformed):
        return False
    return True
