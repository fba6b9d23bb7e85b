"""Credentials of a merchant at PayPal, and the key that signs its webhooks."""

import secrets
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from payments.providers.rsa import load_private_key
from payments.sandbox.issuing import new_key_file, self_signed, stored

_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


class PayPalKeys:
    """The merchant's fields without address and endpoint, and their certificate's key.

    Made under `folder` if missing; the caller holds its lock.
    """

    def __init__(self, folder: Path) -> None:
        self.settings = stored(folder / "paypal.json", partial(_make, folder))
        self.key = load_private_key((folder / "paypal_key.pem").read_bytes())


def number(length: int) -> str:
    """Make a number as PayPal writes its own."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


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
