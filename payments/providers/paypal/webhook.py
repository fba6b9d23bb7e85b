"""Verification of PayPal's webhooks by certificates that we hold, whatever a request names."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import Certificate

from idempotency.webhooks.paypal import signed_text
from idempotency.webhooks.verifiers import TOLERANCE_SECONDS
from payments.errors import SignatureInvalid
from payments.providers import rsa
from payments.providers.authenticity import lower_case
from payments.providers.documents import in_utc
from payments.providers.key_files import is_within_time

HEADERS = (
    *("Paypal-Transmission-Id", "Paypal-Transmission-Time", "Paypal-Transmission-Sig"),
    *("Paypal-Auth-Algo", "Content-Type"),
)
# a delivery is tried for three days, and nothing says that each try is signed again
AGE_MAX = timedelta(days=4)


def verify(
    headers: Mapping[str, str], body: bytes, *, now: datetime, webhook_id: str, certificates: Sequence[Certificate]
) -> None:
    """Require the signature of a certificate valid `now`. Raises SignatureInvalid."""
    given = lower_case(headers)
    number, sent_at, signature, algorithm = (given.get(name.lower(), "") for name in HEADERS[:4])
    if algorithm != "SHA256withRSA":
        raise SignatureInvalid("not signed as PayPal signs")
    try:
        age = now - in_utc(datetime.fromisoformat(sent_at))
    except ValueError:
        raise SignatureInvalid("the transmission's time is none") from None
    if not -timedelta(seconds=TOLERANCE_SECONDS) < age < AGE_MAX:
        raise SignatureInvalid("the transmission is stale or of the future")
    signed = signed_text(number=number, sent_at=sent_at, webhook_id=webhook_id, body=body)
    valid = [held for held in certificates if is_within_time(held, now)]
    keys = [key for held in valid if isinstance(key := held.public_key(), RSAPublicKey)]
    if not any(rsa.verifies(signed, signature, key) for key in keys):
        raise SignatureInvalid("the signature does not verify")
