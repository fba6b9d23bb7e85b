"""Keys and certificates in PEM form; a wrong file is explained to who put it there.

Every function raises ValueError with the end of a sentence that begins with the file's name. The file's content
never appears in it.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from payments.providers import rsa

BITS_MIN = 2048

_BEGIN = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)


def private_key(pem: bytes) -> RSAPrivateKey:
    """Load our own key: RSA, not encrypted, of `BITS_MIN` bits or more."""
    kinds = _kinds(pem)
    if _ENCRYPTED.search(pem):
        raise ValueError(
            "is encrypted with a passphrase, which cannot be typed here; write it without: openssl pkey"
        )
    if not any(kind.endswith("PRIVATE KEY") for kind in kinds):
        raise ValueError(f"is a {kinds[0].lower()}; our own private key belongs here")
    try:
        key = rsa.load_private_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("is not a whole RSA private key") from error
    _long_enough(key.key_size)
    return key


def public_keys(pem: bytes) -> tuple[RSAPublicKey, ...]:
    """Load the other side's public keys or certificates, one or several."""
    _must_be_public(_kinds(pem))
    try:
        keys = rsa.load_public_keys(pem)
    except ValueError as error:
        raise ValueError("is not a whole RSA public key or certificate") from error
    for key in keys:
        _long_enough(key.key_size)
    return keys


def public_key(pem: bytes) -> RSAPublicKey:
    """Load the other side's only key."""
    keys = public_keys(pem)
    if len(keys) > 1:
        raise ValueError(f"holds {len(keys)} keys; each needs a file of its own")
    return keys[0]


def certificate(pem: bytes) -> x509.Certificate:
    """Load one certificate; its issuers may follow it."""
    kinds = _kinds(pem)
    _must_be_public(kinds)
    if "CERTIFICATE" not in kinds:
        raise ValueError(f"is a {kinds[0].lower()}; a certificate belongs here")
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise ValueError("is not a whole certificate") from error


def is_within_time(held: x509.Certificate, now: datetime) -> bool:
    """Check that `now`, aware, is in the certificate's time; its edges count."""
    return held.not_valid_before_utc <= now <= held.not_valid_after_utc


def must_be_valid(held: x509.Certificate) -> None:
    """Check that the certificate is within its time. Raises ValueError."""
    now, first, last = datetime.now(UTC), held.not_valid_before_utc, held.not_valid_after_utc
    if now < first:
        raise ValueError(f"is a certificate that is not valid before {first:%Y-%m-%d %H:%M} UTC")
    if now > last:
        raise ValueError(f"is a certificate that expired on {last:%Y-%m-%d}; get its successor from the provider")


def is_valid(pem: bytes) -> bool:
    """Check for a certificate within its time, or a bare public key, which has none."""
    return "CERTIFICATE" not in _kinds(pem) or is_within_time(certificate(pem), datetime.now(UTC))


def leaves(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    return [certificate for certificate in certificates if not may_issue(certificate)]


def may_issue(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _kinds(pem: bytes) -> Sequence[str]:
    """List the types of the PEM blocks: at least one, each of them whole."""
    if not pem.strip():
        raise ValueError("is empty")
    begun = _BEGIN.findall(pem)
    if not begun:
        raise ValueError("is not in PEM form: it has no -----BEGIN … ----- line")
    if len(rsa.PEM_BLOCK.findall(pem)) != len(begun):
        raise ValueError("is cut short: a -----BEGIN … ----- line lacks its -----END … -----")
    return [kind.decode() for kind in begun]


def _must_be_public(kinds: Sequence[str]) -> None:
    if any(kind.endswith("PRIVATE KEY") for kind in kinds):
        raise ValueError("holds a private key; the provider's public one belongs here")


def _long_enough(bits: int) -> None:
    if bits < BITS_MIN:
        raise ValueError(f"is a key of {bits} bits; {BITS_MIN} or more are needed")
