"""Verifier of PayPal's webhooks, which sign with the key of a certificate."""

import base64
import re
import zlib
from collections.abc import Callable
from typing import Any

from idempotency.extras import needed
from idempotency.webhooks.event import Event, NotGenuine, Unverifiable
from idempotency.webhooks.verifiers import Secret, Verifier

# no other address is ever fetched, whatever a request names
_CERTIFICATE = re.compile(r"https://api(\.sandbox)?\.paypal\.com/v1/notifications/certs/[\w-]{1,100}", re.ASCII)
_CACHED_MAX = 16


def signed_text(*, number: str, sent_at: str, webhook_id: str, body: bytes) -> bytes:
    """Build what PayPal signs: a transmission's number and time, our id, the body's CRC-32.

    Source: PayPal, "Integrate webhooks", self verification method (read 2026-11).
    """
    return f"{number}|{sent_at}|{webhook_id}|{zlib.crc32(body)}".encode()


class PayPal(Verifier):
    """PayPal's webhooks, verified without a call to its API. Needs ``payonce[encryption]``.

    Args:
        webhook_id: PayPal's id of our endpoint; as a `Verifier` takes its secret.
        fetch: gets the PEM certificate at an address of PayPal's, over TLS that it verifies, and follows no
            redirect; the bytes are cached.
    """

    headers = (
        *("Paypal-Transmission-Id", "Paypal-Transmission-Time", "Paypal-Transmission-Sig"),
        *("Paypal-Cert-Url", "Paypal-Auth-Algo"),
    )
    id_member = "id"

    def __init__(self, webhook_id: Secret, *, fetch: Callable[[str], bytes]) -> None:
        with needed("encryption", by="idempotency.webhooks.PayPal"):
            import cryptography  # noqa: F401, PLC0415  an extra
        super().__init__(webhook_id)
        self._fetch = fetch
        self._cached: dict[str, Any] = {}

    def check(self, event: Event) -> None:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

        number, sent_at, encoded, address, algorithm = (event.header(name) for name in self.headers)
        if algorithm != "SHA256withRSA" or not _CERTIFICATE.fullmatch(address):
            raise NotGenuine("not signed as PayPal signs")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise NotGenuine("the signature is not base64") from None
        webhook_ids = self.secrets()
        certificate = self._certificate(address)
        if not certificate.not_valid_before_utc <= event.received_at <= certificate.not_valid_after_utc:
            raise NotGenuine("the certificate has expired")
        for webhook_id in webhook_ids:
            signed = signed_text(number=number, sent_at=sent_at, webhook_id=webhook_id, body=event.body)
            try:
                certificate.public_key().verify(signature, signed, PKCS1v15(), SHA256())
            except InvalidSignature:
                continue
            return
        raise NotGenuine("the signature does not verify")

    def _certificate(self, address: str) -> Any:
        from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415

        if address not in self._cached:
            try:
                certificate = load_pem_x509_certificate(self._fetch(address))
            except Exception as error:
                raise Unverifiable(f"PayPal's certificate cannot be had: {type(error).__name__}") from error
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[address] = certificate
        return self._cached[address]
