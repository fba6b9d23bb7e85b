"""WeChat Pay's settings."""

from functools import partial
from pathlib import Path

from payments.providers import key_files
from payments.providers import settings_fields as fields
from payments.providers.settings_fields import ConfigError, Settings
from payments.providers.wechat.keys import PUBLIC_KEY_PREFIX, SERIAL, KeyRing

API_V3_KEY_BYTES = 32

api_url = partial(fields.url, "wechat", "API_URL")


def mch_pair(settings: Settings) -> tuple[str, bytes]:
    """Return our certificate's serial and our key, which must be the certificate's.

    So key and certificate can be replaced one after the other: nothing changes until both are there.
    """
    file, serial = settings.get("MCH_CERT_FILE", ""), settings.get("MCH_SERIAL", "")
    pem = fields.pem("WECHAT_MCH_KEY_FILE", settings["MCH_KEY_FILE"], key_files.private_key)
    if not file:
        if serial and not SERIAL.fullmatch(serial.upper()):
            raise ConfigError(
                "WECHAT_MCH_SERIAL must be the hexadecimal serial of our certificate: openssl x509 -noout -serial."
            )
        return serial, pem
    name = "WECHAT_MCH_CERT_FILE"
    own = key_files.certificate(fields.pem(name, file, key_files.certificate))
    if own.public_key() != key_files.private_key(pem).public_key():
        raise ConfigError(f"{name}: {file} is not the certificate of the key in WECHAT_MCH_KEY_FILE.")
    try:
        key_files.must_be_valid(own)
    except ValueError as error:
        raise ConfigError(f"{name}: {file} {error}.") from error
    found = f"{own.serial_number:X}"
    if serial and serial.upper().lstrip("0") != found:
        raise ConfigError(f"WECHAT_MCH_SERIAL is not the serial of {name}; leave it unset, or set it to {found}.")
    return found, pem


def api_v3_keys(settings: Settings) -> tuple[bytes, ...]:
    """Read the keys, the current one first: the one setting, or every line of the file."""
    name, file = "WECHAT_API_V3_KEY", settings.get("API_V3_KEY_FILE", "")
    if not file:
        if "API_V3_KEY" not in settings:
            raise ConfigError(f"Neither {name} nor {name}_FILE is set, but other settings of wechat are.")
        return (_api_v3_key(settings["API_V3_KEY"].encode(), name),)
    if settings.get("API_V3_KEY"):
        raise ConfigError(f"{name} and {name}_FILE are both set; set one of them.")
    lines = fields.content(f"{name}_FILE", file).splitlines()
    keys = [_api_v3_key(line, f"{name}_FILE: line {number}") for number, line in enumerate(lines, 1) if line]
    if not keys:
        raise ConfigError(f"{name}_FILE: {file} holds no key.")
    return tuple(keys)


def _api_v3_key(key: bytes, name: str) -> bytes:
    if len(key) != API_V3_KEY_BYTES:
        raise ConfigError(f"{name} must have {API_V3_KEY_BYTES} bytes, not {len(key)}.")
    return key


def platform_keys(settings: Settings) -> dict[str, bytes]:
    """Read certificates by upper-case serial, and public keys by ``PUB_KEY_ID_…``."""
    name, folder = "WECHAT_PLATFORM_KEYS_DIR", Path(settings["PLATFORM_KEYS_DIR"])
    if not folder.is_dir():
        raise ConfigError(f"{name}: {folder} is not a folder.")
    keys = {}
    for path in sorted(folder.glob("*.pem")):
        serial = path.stem
        if not serial.startswith(PUBLIC_KEY_PREFIX) and not SERIAL.fullmatch(serial.upper()):
            raise ConfigError(
                f"{name}: {path.name} is named neither <HEXSERIAL>.pem nor {PUBLIC_KEY_PREFIX}….pem."
            )
        keys[serial] = fields.pem(f"{name}/{path.name}", str(path), key_files.public_key)
        try:
            KeyRing({serial: keys[serial]})
        except ValueError as error:
            raise ConfigError(f"{name}: {path.name} is not what its name says: {error}.") from error
    if not keys:
        raise ConfigError(f"{name}: {folder} holds no .pem file.")
    return keys


def valid_platform_keys(settings: Settings) -> None:
    """Require one valid certificate; an expired one beside its successor is fine."""
    if not any(key_files.is_valid(pem) for pem in platform_keys(settings).values()):
        raise ConfigError(
            f"WECHAT_PLATFORM_KEYS_DIR: no certificate in {settings['PLATFORM_KEYS_DIR']} is valid now; "
            "get the platform's current one."
        )
