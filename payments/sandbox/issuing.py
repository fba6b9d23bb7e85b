"""Keys and certificates that the sandbox makes for both sides."""

import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CERTIFICATE_DAYS = 1825


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def new_key_file(path: Path) -> rsa.RSAPrivateKey:
    """Make a key and write it to `path`, readable by its owner alone."""
    key = new_key()
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def stored(file: Path, make: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    """Read settings, or `make` them; the file comes last, so what it names is complete."""
    if not file.exists():
        fresh = file.with_suffix(".new")
        write_private(fresh, json.dumps(make(), indent=2).encode())
        fresh.rename(file)
    found: dict[str, str] = json.loads(file.read_text())
    return found


def write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def distinguished_name(common_name: str) -> x509.Name:
    """Build a name of the four parts that every SDK reads, the least specific first."""
    parts = {
        NameOID.COUNTRY_NAME: "CN",
        NameOID.ORGANIZATION_NAME: "PayOnce",
        NameOID.ORGANIZATIONAL_UNIT_NAME: "Certification Authority",
        NameOID.COMMON_NAME: common_name,
    }
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def issue(
    subject: x509.Name,
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Name,
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    is_issuer: bool = False,
    days: tuple[float, float] = (-1, CERTIFICATE_DAYS),
    serial_number: int | None = None,
) -> x509.Certificate:
    """Issue a certificate.

    Args:
        key: the issuer's.
        days: valid from and until, counted from now.
        serial_number: by default a random one of full length, so that its hexadecimal form never starts with a
            zero that someone drops.
    """
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(secrets.randbits(156) | 1 << 156 if serial_number is None else serial_number)
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_issuer, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def self_signed(
    common_name: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, *, is_issuer: bool = True
) -> x509.Certificate:
    name = distinguished_name(common_name)
    return issue(name, key.public_key(), issuer=name, key=key, is_issuer=is_issuer)
