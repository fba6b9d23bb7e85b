"""Alipay from its settings."""

from functools import partial

from payments.providers import key_files
from payments.providers import settings_fields as fields
from payments.providers.alipay.calls import AlipayConfig
from payments.providers.alipay.client import Alipay
from payments.providers.alipay.keys import APP, PLATFORM, ROOT, CertificateError, CertificatePems
from payments.providers.base import Provider
from payments.providers.settings_fields import ConfigError, Settings
from payments.providers.transport import Limits

_CERTIFICATE_FILES = {APP: "APP_CERT_FILE", PLATFORM: "PUBLIC_CERT_FILE", ROOT: "ROOT_CERT_FILE"}
CERTIFICATE_FILES = tuple(_CERTIFICATE_FILES.values())

gateway_url = partial(fields.url, "alipay", "GATEWAY_URL")


def build(settings: Settings, limits: Limits) -> Provider:
    certified = certificates(settings)
    try:
        return Alipay(
            AlipayConfig(
                gateway_url=gateway_url(settings),
                app_id=settings["APP_ID"],
                seller_id=settings["SELLER_ID"],
                app_private_key_pem=app_key(settings),
                alipay_public_key_pem=b"" if certified else platform_keys(settings),
                certificates=certified,
            ),
            limits=limits,
        )
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


def certificates(settings: Settings) -> CertificatePems | None:
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
    pems = {
        which: fields.content(fields.env_name("alipay", field), settings[field])
        for which, field in _CERTIFICATE_FILES.items()
    }
    return CertificatePems(**pems)
