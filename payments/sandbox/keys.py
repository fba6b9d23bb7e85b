"""Every key of both sides, made once under a folder, for sandbox and shop.

The sandbox plays the platforms, so it holds their private keys; of the merchant's it uses the public halves only.
"""

import fcntl
import os
import secrets
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payments.providers.rsa import load_private_key, load_public_key
from payments.sandbox.alipay.keys import AlipayCertificates
from payments.sandbox.issuing import new_key_file, self_signed, stored
from payments.sandbox.paypal.keys import PayPalKeys

_NAME = "PayOnce sandbox"
_PLATFORMS = {"WECHAT_PLATFORM_KEYS_DIR", "ALIPAY_PUBLIC_KEY_FILE"}  # public halves of keys that only we hold


class Keys:
    """Keys that the sandbox works with: those of `folder`, made if missing.

    Attributes:
        settings: the shop's channel settings by their environment names, without the addresses; the environment
            may replace the shop's own.
        merchant, app: the shop's keys for WeChat and Alipay (only their public halves are used).
        platform, platform_serial, certificate: WeChat's certificate mode.
        platform_public, public_key_id: WeChat's public-key mode.
        alipay: Alipay's own key.
        alipay_certificates: Alipay's certificate mode, which `settings` do not choose.
        paypal: a merchant's fields at PayPal, which `settings` do not turn on.
    """

    def __init__(self, folder: Path) -> None:
        self.settings, self.alipay_certificates, self.paypal = _opened(folder)
        platform_dir = Path(self.settings["WECHAT_PLATFORM_KEYS_DIR"])
        self.settings |= {name: value for name in self.settings.keys() - _PLATFORMS if (value := _chosen(name))}
        self.merchant = _private(Path(self.settings["WECHAT_MCH_KEY_FILE"]))
        self.app = _private(Path(self.settings["ALIPAY_APP_KEY_FILE"]))
        self.platform = _private(folder / "wechat_platform_key.pem")
        # the shop stores later certificates beside the first one
        certificate = next(path for path in platform_dir.glob("*.pem") if _is_of(path, self.platform))
        self.platform_serial, self.certificate = certificate.stem, certificate.read_text()
        self.platform_public = _private(folder / "wechat_public_key_private.pem")
        self.public_key_id = next(platform_dir.glob("PUB_KEY_ID_*.pem")).stem
        self.alipay = _private(folder / "alipay_key.pem")


def ensure(folder: Path) -> dict[str, str]:
    """Make all missing keys under `folder` and return the channel settings that use them."""
    return _opened(folder)[0]


def make_platform_pair(folder: Path, *, name: str) -> None:
    """Make a further ``<name>.key`` of WeChat's platform, then its ``<name>.pem``."""
    folder.mkdir(exist_ok=True)
    certificate = self_signed(_NAME, new_key_file(folder / f"{name}.key"), is_issuer=False)
    draft = folder / f"{name}.new"
    draft.write_bytes(certificate.public_bytes(Encoding.PEM))
    draft.rename(folder / f"{name}.pem")


def _opened(folder: Path) -> tuple[dict[str, str], AlipayCertificates, PayPalKeys]:
    """Make what is missing: of two processes at once, one does and the other waits and reads."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "keys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = stored(folder / "settings.json", partial(_make, folder))
        alipay = AlipayCertificates(folder, app_key_file=Path(settings["ALIPAY_APP_KEY_FILE"]))
        return settings, alipay, PayPalKeys(folder)


def _chosen(name: str) -> str:
    """Read a setting of the environment or its file; of several secrets the first, the newest."""
    file = os.environ.get(f"{name}_FILE")
    return (Path(file).read_text() if file else os.environ.get(name, "")).strip().partition("\n")[0]


def _private(path: Path) -> rsa.RSAPrivateKey:
    return load_private_key(path.read_bytes())


def _is_of(path: Path, key: rsa.RSAPrivateKey) -> bool:
    return not path.stem.startswith("PUB_KEY_ID_") and load_public_key(path.read_bytes()) == key.public_key()


def _make(folder: Path) -> dict[str, str]:
    platform_dir = folder / "wechat_platform"
    platform_dir.mkdir(exist_ok=True)
    for old in platform_dir.glob("*.pem"):
        old.unlink()  # of a start that was cut off
    merchant = new_key_file(folder / "wechat_merchant_key.pem")
    new_key_file(folder / "alipay_app_key.pem")
    platform = new_key_file(folder / "wechat_platform_key.pem")
    public_mode = new_key_file(folder / "wechat_public_key_private.pem")
    alipay = new_key_file(folder / "alipay_key.pem")
    certificate = self_signed(_NAME, platform, is_issuer=False)
    serial = f"{certificate.serial_number:X}"
    (platform_dir / f"{serial}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    _write_public(platform_dir / f"PUB_KEY_ID_{_digits(32)}.pem", public_mode)
    _write_public(folder / "alipay_public_key.pem", alipay)
    return {
        "WECHAT_MCH_ID": _digits(10),
        "WECHAT_APP_ID": f"wx{secrets.token_hex(8)}",
        "WECHAT_MCH_SERIAL": f"{self_signed(_NAME, merchant, is_issuer=False).serial_number:X}",
        "WECHAT_API_V3_KEY": secrets.token_hex(16),
        "WECHAT_MCH_KEY_FILE": str(folder / "wechat_merchant_key.pem"),
        "WECHAT_PLATFORM_KEYS_DIR": str(platform_dir),
        "ALIPAY_APP_ID": _digits(16),
        "ALIPAY_SELLER_ID": f"2088{_digits(12)}",
        "ALIPAY_APP_KEY_FILE": str(folder / "alipay_app_key.pem"),
        "ALIPAY_PUBLIC_KEY_FILE": str(folder / "alipay_public_key.pem"),
        "STRIPE_SECRET_KEY": f"sk_test_{secrets.token_hex(24)}",
        "STRIPE_WEBHOOK_SECRET": f"whsec_{secrets.token_hex(24)}",
    }


def _digits(count: int) -> str:
    return str(secrets.randbelow(9) + 1) + "".join(str(secrets.randbelow(10)) for _ in range(count - 1))


def _write_public(path: Path, key: rsa.RSAPrivateKey) -> None:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
