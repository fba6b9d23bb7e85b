"""Alipay's settings."""

from functools import partial

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from payments.providers import key_files
from payments.providers import settings_fields as fields
from payments.providers.alipay.keys import APP, PLATFORM, ROOT, CertificateError, CertificateTrust, KeyTrust, Trust
from payments.providers.settings_fields import ConfigError, Settings

_CERTIFICATE_FILES = {APP: "APP_CERT_FILE", PLATFORM: "PUBLIC_CERT_FILE", ROOT: "ROOT_CERT_FILE"}
CERTIFICATE_FILES = tuple(_CERTIFICATE_FILES.values())

gateway_url = partial(fields.url, "alipay", "GATEWAY_URL")


def trusted(settings: Settings, *, app_key: RSAPublicKey, now: float) -> Trust:
    """Read the keys whose signatures count as Alipay's."""
    certified = certificates(settings)
    if certified is None:
        return KeyTrust(platform_keys(settings))
    try:
        return CertificateTrust(certified, app_key=app_key, now=now)
    except CertificateError as error:
        field = _CERTIFICATE_FILES[error.which]
        raise ConfigError(f"{fields.env_name('alipay', field)}: {settings[field]}: {error.problem}.") from error


def app_key(settings: Settings) -> bytes:
    return fields.pem("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"], key_files.private_key)


def platform_keys(settings: Settings) -> bytes:
    """Read Alipay's public keys; refuses our own, which its console shows beside it."""
    if certificates_set(settings):
        return b""
    name, file = "ALIPAY_PUBLIC_KEY_FILE", settings["PUBLIC_KEY_FILE"]
    pem = fields.pem(name, file, key_files.public_keys)
    try:
        own = key_files.private_key(fields.content("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"])).public_key()
    except ValueError:
        return pem  # `app_key` reports it
    if own in key_files.public_keys(pem):
        raise ConfigError(f"{name}: {file} holds our application's own public key; Alipay's belongs here.")
    return pem


def certificates_set(settings: Settings) -> list[str]:
    return [field for field in CERTIFICATE_FILES if settings.get(field)]


def certificates(settings: Settings) -> dict[str, bytes] | None:
    """Read the three files of certificate mode; None in key mode, where none of them is set."""
    given = certificates_set(settings)
    if not given:
        return None
    for field in CERTIFICATE_FILES:
        if field not in given:
            known = ", ".join(fields.env_name("alipay", other) for other in given)
            raise ConfigError(
                f"{fields.env_name('alipay', field)} is not set, but {known} is: certificate mode needs all three."
            )
    return {
        which: fields.content(fields.env_name("alipay", field), settings[field])
        for which, field in _CERTIFICATE_FILES.items()
    }
