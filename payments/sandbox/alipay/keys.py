"""Alipay's certificate mode: roots, and the platform's and the app's certificates.

The root file is made as the real one: certificates with an empty line between them, one of them not RSA and so
left out of the roots' SN.
"""

from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from payments.providers.alipay.keys import certificate_sn, root_sn
from payments.providers.rsa import load_private_key
from payments.sandbox.issuing import distinguished_name, issue, new_key, new_key_file, self_signed, stored

_PLATFORM_KEY = "alipay_certificate_key.pem"


class AlipayCertificates:
    """Certificate mode of both sides, with the platform's key; key mode has another.

    Made under `folder` if missing; the caller holds its lock.
    """

    def __init__(self, folder: Path, *, app_key_file: Path) -> None:
        self.settings = stored(folder / "alipay_certificates.json", partial(_make, folder, app_key_file))
        self.platform = load_private_key((folder / _PLATFORM_KEY).read_bytes())
        self.platform_sn = certificate_sn(self._certificates("ALIPAY_PUBLIC_CERT_FILE")[0])
        self.app_sn = certificate_sn(self._certificates("ALIPAY_APP_CERT_FILE")[0])
        self.root_sn = root_sn(self._certificates("ALIPAY_ROOT_CERT_FILE"))

    def _certificates(self, name: str) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(Path(self.settings[name]).read_bytes())


def _make(folder: Path, app_key_file: Path) -> dict[str, str]:
    app_key = load_private_key(app_key_file.read_bytes()).public_key()
    root_key, other_key = new_key(), new_key()
    root = self_signed("PayOnce Sandbox Certification Authority R1", root_key)
    roots = [
        root,
        self_signed("PayOnce Sandbox Curve CA", ec.generate_private_key(ec.SECP256R1())),
        self_signed("PayOnce Sandbox Second Root CA", other_key),
    ]
    platform_key = new_key_file(folder / _PLATFORM_KEY).public_key()
    platform = issue(distinguished_name("Alipay"), platform_key, issuer=root.subject, key=root_key)
    app = issue(distinguished_name("shop"), app_key, issuer=root.subject, key=root_key)
    files = {
        "ALIPAY_APP_CERT_FILE": ("alipay_app_certificate.pem", [app]),
        "ALIPAY_PUBLIC_CERT_FILE": ("alipay_certificate.pem", [platform]),
        "ALIPAY_ROOT_CERT_FILE": ("alipay_root_certificates.pem", roots),
    }
    for name, certificates in files.values():
        (folder / name).write_bytes(b"\n".join(one.public_bytes(Encoding.PEM) for one in certificates))
    return {setting: str(folder / name) for setting, (name, _) in files.items()}
