"""What Alipay's certificate mode takes: roots, the platform's certificate under one of them, and the app's own.

The root file is made as the real one is: several certificates with an empty line between them, one of which is not
RSA and so is left out of the roots' SN.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from payments.providers.alipay.keys import certificate_sn, root_sn
from payments.providers.rsa import load_private_key

CERTIFICATE_DAYS = 1825
_FILE = "alipay_certificates.json"
_PLATFORM_KEY = "alipay_certificate_key.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlipayCertificates:
    """Certificate mode of both sides.

    Attributes:
        settings: the shop's three settings by their environment names.
        platform: the key of the platform's certificate; key mode has another.
        platform_sn, app_sn, root_sn: as requests and answers carry them.
    """

    settings: Mapping[str, str]
    platform: rsa.RSAPrivateKey
    platform_sn: str
    app_sn: str
    root_sn: str


def ensure(folder: Path, *, app_key_file: Path) -> None:
    """Make what is missing under `folder`; the caller holds its lock."""
    if (folder / _FILE).exists():
        return
    settings = _make(folder, load_private_key(app_key_file.read_bytes()).public_key())
    fresh = (folder / _FILE).with_suffix(".new")
    fresh.write_text(json.dumps(settings, indent=2))
    fresh.rename(folder / _FILE)  # last: what is named here is complete


def load(folder: Path) -> AlipayCertificates:
    """What `ensure` made."""
    settings: dict[str, str] = json.loads((folder / _FILE).read_text())

    def certificates(name: str) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(Path(settings[name]).read_bytes())

    return AlipayCertificates(
        settings=settings,
        platform=load_private_key((folder / _PLATFORM_KEY).read_bytes()),
        platform_sn=certificate_sn(certificates("ALIPAY_PUBLIC_CERT_FILE")[0]),
        app_sn=certificate_sn(certificates("ALIPAY_APP_CERT_FILE")[0]),
        root_sn=root_sn(certificates("ALIPAY_ROOT_CERT_FILE")),
    )


def _make(folder: Path, app_key: rsa.RSAPublicKey) -> dict[str, str]:
    root_key, other_key, platform_key = (_rsa_key() for _ in range(3))
    curve_key = ec.generate_private_key(ec.SECP256R1())
    root_name = distinguished_name("PayOnce Sandbox Certification Authority R1")
    roots = [
        issue(root_name, root_key.public_key(), issuer=root_name, key=root_key, is_issuer=True),
        _self_signed(distinguished_name("PayOnce Sandbox Curve CA"), curve_key),
        _self_signed(distinguished_name("PayOnce Sandbox Second Root CA"), other_key),
    ]
    platform = issue(distinguished_name("Alipay"), platform_key.public_key(), issuer=root_name, key=root_key)
    app = issue(distinguished_name("shop"), app_key, issuer=root_name, key=root_key)
    key_file = folder / _PLATFORM_KEY
    key_file.unlink(missing_ok=True)
    key_file.touch(mode=0o600)
    key_file.write_bytes(platform_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files = {
        "ALIPAY_APP_CERT_FILE": ("alipay_app_certificate.pem", [app]),
        "ALIPAY_PUBLIC_CERT_FILE": ("alipay_certificate.pem", [platform]),
        "ALIPAY_ROOT_CERT_FILE": ("alipay_root_certificates.pem", roots),
    }
    for name, certificates in files.values():
        (folder / name).write_bytes(b"\n".join(one.public_bytes(Encoding.PEM) for one in certificates))
    return {setting: str(folder / name) for setting, (name, _) in files.items()}


def distinguished_name(common_name: str) -> x509.Name:
    """A name with the four parts that every SDK reads, from the least specific on, as certificates hold them."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "CN"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "PayOnce"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Certification Authority"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def issue(
    subject: x509.Name,
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Name,
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    is_issuer: bool = False,
    days: tuple[int, int] = (-1, CERTIFICATE_DAYS),
    serial_number: int | None = None,
) -> x509.Certificate:
    """A certificate.

    Args:
        key: the issuer's.
        days: valid from and until, counted from now.
    """
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(secrets.randbits(156) | 1 if serial_number is None else serial_number)
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_issuer, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def _self_signed(name: x509.Name, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return issue(name, key.public_key(), issuer=name, key=key, is_issuer=True)


def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
