"""Credentials of a merchant at PayPal, and the key that signs its webhooks."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from payments.providers.rsa import load_private_key
from payments.sandbox.issuing import new_key_file, self_signed, stored

_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayPalKeys:
    """The merchant's fields without address and endpoint, and their certificate's key."""

    settings: Mapping[str, str]
    key: rsa.RSAPrivateKey


def number(length: int) -> str:
    """Make a number as PayPal writes its own."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def load(folder: Path) -> PayPalKeys:
    """Load what is under `folder`, made if missing; the caller holds its lock."""
    settings = stored(folder / "paypal.json", partial(_make, folder))
    return PayPalKeys(settings=settings, key=load_private_key((folder / "paypal_key.pem").read_bytes()))


def _make(folder: Path) -> dict[str, str]:
    key = new_key_file(folder / "paypal_key.pem")
    certificate = self_signed("messageverificationcerts.sandbox", key, is_issuer=False)
    (folder / "paypal_cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    return {
        "CLIENT_ID": secrets.token_urlsafe(40),
        "CLIENT_SECRET": secrets.token_urlsafe(40),
        "MERCHANT_ID": number(13),
        "CERT_FILE": str(folder / "paypal_cert.pem"),
    }
