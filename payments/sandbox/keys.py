"""Every key of both sides, made once under a folder, for sandbox and shop.

The sandbox plays the platforms, so it holds their private keys; of the merchant's it uses the public halves only.
"""

import fcntl
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payments.providers.rsa import load_private_key, load_public_key
from payments.sandbox.alipay import keys as alipay_keys
from payments.sandbox.issuing import new_key_file, self_signed, stored
from payments.sandbox.paypal import keys as paypal_keys

_NAME = "PayOnce sandbox"
_PLATFORMS = {"WECHAT_PLATFORM_KEYS_DIR", "ALIPAY_PUBLIC_KEY_FILE"}  # public halves of keys that only we hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys that the sandbox works with.

    Attributes:
        settings: the shop's channel settings by their environment names, without the addresses.
        merchant, app: the shop's keys for WeChat and Alipay (only their public halves are used).
        platform, platform_serial, certificate: WeChat's certificate mode.
        platform_public, public_key_id: WeChat's public-key mode.
        alipay: Alipay's own key.
        alipay_certificates: Alipay's certificate mode, which `settings` do not choose.
        paypal: a merchant's fields at PayPal, which `settings` do not turn on.
    """

    settings: Mapping[str, str]
    merchant: rsa.RSAPrivateKey
    app: rsa.RSAPrivateKey
    platform: rsa.RSAPrivateKey
    platform_serial: str
    certificate: str
    platform_public: rsa.RSAPrivateKey
    public_key_id: str
    alipay: rsa.RSAPrivateKey
    alipay_certificates: alipay_keys.AlipayCertificates
    paypal: paypal_keys.PayPalKeys


def ensure(folder: Path) -> dict[str, str]:
    """Make all missing keys under `folder` and return the channel settings that use them."""
    return _opened(folder.resolve())[0]


def load(folder: Path) -> Keys:
    """Load all keys of `folder`, made if missing; the environment may replace the shop's own."""
    folder = folder.resolve()
    settings, alipay_certificates, paypal = _opened(folder)
    platform_dir = Path(settings["WECHAT_PLATFORM_KEYS_DIR"])
    settings |= {name: value for name in settings.keys() - _PLATFORMS if (value := _chosen(name))}
    public_key = next(platform_dir.glob("PUB_KEY_ID_*.pem"))

    def private(name: str) -> rsa.RSAPrivateKey:
        return load_private_key((folder / name).read_bytes())

    platform = private("wechat_platform_key.pem")
    # the shop stores later certificates beside the first one
    certificate = next(path for path in platform_dir.glob("*.pem") if _is_of(path, platform))
    return Keys(
        settings=settings,
        merchant=load_private_key(Path(settings["WECHAT_MCH_KEY_FILE"]).read_bytes()),
        app=load_private_key(Path(settings["ALIPAY_APP_KEY_FILE"]).read_bytes()),
        platform=platform,
        platform_serial=certificate.stem,
        certificate=certificate.read_text(),
        platform_public=private("wechat_public_key_private.pem"),
        public_key_id=public_key.stem,
        alipay=private("alipay_key.pem"),
        alipay_certificates=alipay_certificates,
        paypal=paypal,
    )


def make_platform_pair(folder: Path, *, name: str) -> None:
    """Make a further ``<name>.key`` of WeChat's platform, then its ``<name>.pem``."""
    folder.mkdir(exist_ok=True)
    certificate = self_signed(_NAME, new_key_file(folder / f"{name}.key"), is_issuer=False)
    draft = folder / f"{name}.new"
    draft.write_bytes(certificate.public_bytes(Encoding.PEM))
    draft.rename(folder / f"{name}.pem")


def _opened(folder: Path) -> tuple[dict[str, str], alipay_keys.AlipayCertificates, paypal_keys.PayPalKeys]:
    """Make what is missing: of two processes at once, one does and the other waits and reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "keys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = stored(folder / "settings.json", partial(_make, folder))
        alipay = alipay_keys.load(folder, app_key_file=Path(settings["ALIPAY_APP_KEY_FILE"]))
        return settings, alipay, paypal_keys.load(folder)


def _chosen(name: str) -> str:
    """Read a setting of the environment or its file; of several secrets the first, the newest."""
    file = os.environ.get(f"{name}_FILE")
    return (Path(file).read_text() if file else os.environ.get(name, "")).strip().partition("\n")[0]


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
