"""From settings to provider objects; every mistake is told with the name of its environment setting."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from payments.providers import key_files
from payments.providers.alipay import Alipay, AlipayConfig
from payments.providers.alipay_certificates import APP, PLATFORM, ROOT, CertificateError, CertificatePems
from payments.providers.base import Provider
from payments.providers.stripe_intents import METHODS, StripeConfig, StripeIntents
from payments.providers.transport import Limits
from payments.providers.wechat import WeChatPay
from payments.providers.wechat_calls import API_V3_KEY_BYTES, WeChatConfig
from payments.providers.wechat_keys import PUBLIC_KEY_PREFIX, SERIAL, KeyRing

Settings = Mapping[str, str]


def unlimited(channel: str) -> AbstractContextManager[None]:
    """No limits on the calls of `channel`."""
    return nullcontext()


class ConfigError(ValueError):
    """A channel cannot be built; the message names the setting and says what is wrong."""


def build(
    channels: Mapping[str, Settings], *, limits: Callable[[str], AbstractContextManager[None]] = unlimited
) -> dict[str, Provider]:
    """A provider for every configured channel.

    Args:
        channels: channel -> field -> value; the environment's name of a field is ``CHANNEL_FIELD``.
        limits: channel -> a context for one outbound call; see `payments.providers.transport.Limits`.

    Raises:
        ConfigError: a field is missing or wrong, or the channel is unknown.
    """
    built = {}
    for channel, settings in channels.items():
        for problem in _missing(channel, settings):
            raise problem
        built[channel] = _BUILDERS[channel](settings, partial(limits, channel))
    return built


def problems(channel: str, settings: Settings) -> list[ConfigError]:
    """Everything that is wrong with a channel's settings, not only the first of it; none: it can be built."""
    found = _missing(channel, settings)
    for read in _PARTS.get(channel, ()):
        try:
            read(settings)
        except ConfigError as problem:
            found.append(problem)
        except KeyError:
            continue  # it is missing, which is told already
    if not found:
        try:
            build({channel: settings})
        except ConfigError as problem:
            found.append(problem)
    return found


_REQUIRED = {
    "wechat": ("API_URL", "MCH_ID", "APP_ID", "MCH_SERIAL", "MCH_KEY_FILE", "PLATFORM_KEYS_DIR"),
    "alipay": ("GATEWAY_URL", "APP_ID", "SELLER_ID", "APP_KEY_FILE", "PUBLIC_KEY_FILE"),
    "stripe": ("API_URL",),
}


def _missing(channel: str, settings: Settings) -> list[ConfigError]:
    if channel not in _BUILDERS:
        return [ConfigError(f"{channel!r} is not a payment channel; known are {', '.join(sorted(_BUILDERS))}.")]
    named = {**dict.fromkeys(_REQUIRED[channel], ""), **settings}
    return [
        ConfigError(f"{_env(channel, field)} is not set, but other settings of {channel} are.")
        for field, value in named.items()
        if not value and not _stood_for(field, settings)
    ]


def _stood_for(field: str, settings: Settings) -> bool:
    """Whether certificates make do without `field`."""
    if field == "PUBLIC_KEY_FILE":
        return bool(_certificates_set(settings))
    return field == "MCH_SERIAL" and bool(settings.get("MCH_CERT_FILE"))


def _url(channel: str, field: str, settings: Settings) -> str:
    name, value = _env(channel, field), settings[field]
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{name} must be an absolute http(s) address.")
    if parts.username is not None or parts.password is not None:  # it would be told in logs
        raise ConfigError(f"{name} must not hold a user or password.")
    return value.rstrip("/")


def _wechat(settings: Settings, limits: Limits) -> Provider:
    serial, private_key_pem = _mch_pair(settings)
    return WeChatPay(
        WeChatConfig(
            api_url=_url("wechat", "API_URL", settings),
            mch_id=settings["MCH_ID"],
            app_id=settings["APP_ID"],
            mch_serial=serial,
            api_v3_keys=_api_v3_keys(settings),
            mch_private_key_pem=private_key_pem,
            platform_keys=_platform_keys(settings),
        ),
        limits=limits,
    )


def _mch_pair(settings: Settings) -> tuple[str, bytes]:
    """The serial of our certificate and our key; with the certificate's file, another key is refused.

    So a key and its certificate can be replaced one after the other: until both are there, nothing changes.
    """
    file, serial = settings.get("MCH_CERT_FILE", ""), settings.get("MCH_SERIAL", "")
    pem = _pem("WECHAT_MCH_KEY_FILE", settings["MCH_KEY_FILE"], key_files.private_key)
    if not file:
        if serial and not SERIAL.fullmatch(serial.upper()):
            raise ConfigError(
                "WECHAT_MCH_SERIAL must be the hexadecimal serial of our certificate: openssl x509 -noout -serial."
            )
        return serial, pem
    name = "WECHAT_MCH_CERT_FILE"
    own = key_files.certificate(_pem(name, file, key_files.certificate))
    if own.public_key() != key_files.private_key(pem).public_key():
        raise ConfigError(f"{name}: {file} is not the certificate of the key in WECHAT_MCH_KEY_FILE.")
    try:
        key_files.must_be_valid(own, now=datetime.now(UTC))
    except ValueError as error:
        raise ConfigError(f"{name}: {file} {error}.") from error
    found = f"{own.serial_number:X}"
    if serial and serial.upper().lstrip("0") != found:
        raise ConfigError(f"WECHAT_MCH_SERIAL is not the serial of {name}; leave it unset, or set it to {found}.")
    return found, pem


def _api_v3_keys(settings: Settings) -> tuple[bytes, ...]:
    """The current key first: the one setting, or every line of the file."""
    name, file = "WECHAT_API_V3_KEY", settings.get("API_V3_KEY_FILE", "")
    if not file:
        if "API_V3_KEY" not in settings:
            raise ConfigError(f"Neither {name} nor {name}_FILE is set, but other settings of wechat are.")
        return (_api_v3_key(settings["API_V3_KEY"].encode(), name),)
    if settings.get("API_V3_KEY"):
        raise ConfigError(f"{name} and {name}_FILE are both set; set one of them.")
    lines = _bytes(f"{name}_FILE", file).splitlines()
    keys = [_api_v3_key(line, f"{name}_FILE: line {number}") for number, line in enumerate(lines, 1) if line]
    if not keys:
        raise ConfigError(f"{name}_FILE: {file} holds no key.")
    return tuple(keys)


def _api_v3_key(key: bytes, name: str) -> bytes:
    if len(key) != API_V3_KEY_BYTES:
        raise ConfigError(f"{name} must have {API_V3_KEY_BYTES} bytes, not {len(key)}.")
    return key


def _platform_keys(settings: Settings) -> dict[str, bytes]:
    name, folder = "WECHAT_PLATFORM_KEYS_DIR", Path(settings["PLATFORM_KEYS_DIR"])
    if not folder.is_dir():
        raise ConfigError(f"{name}: {folder} is not a folder.")
    keys = {}
    for path in sorted(folder.glob("*.pem")):
        serial = path.stem
        if not serial.startswith(PUBLIC_KEY_PREFIX) and not SERIAL.fullmatch(serial):
            raise ConfigError(
                f"{name}: {path.name} is named neither <HEXSERIAL>.pem nor {PUBLIC_KEY_PREFIX}….pem."
            )
        keys[serial] = _pem(f"{name}/{path.name}", str(path), key_files.public_key)
        try:
            KeyRing({serial: keys[serial]})
        except ValueError as error:
            raise ConfigError(f"{name}: {path.name} is not what its name says: {error}.") from error
    if not keys:
        raise ConfigError(f"{name}: {folder} holds no .pem file.")
    return keys


def _valid_platform_keys(settings: Settings) -> None:
    """An expired certificate beside its successor is in order, so only `problems` asks."""
    if not any(key_files.is_valid(pem) for pem in _platform_keys(settings).values()):
        raise ConfigError(
            f"WECHAT_PLATFORM_KEYS_DIR: no certificate in {settings['PLATFORM_KEYS_DIR']} is valid now; "
            "get the platform's current one."
        )


_CERTIFICATE_FILES = {APP: "APP_CERT_FILE", PLATFORM: "PUBLIC_CERT_FILE", ROOT: "ROOT_CERT_FILE"}


def _alipay(settings: Settings, limits: Limits) -> Provider:
    certificates = _certificates(settings)
    try:
        return Alipay(
            AlipayConfig(
                gateway_url=_url("alipay", "GATEWAY_URL", settings),
                app_id=settings["APP_ID"],
                seller_id=settings["SELLER_ID"],
                app_private_key_pem=_app_key(settings),
                alipay_public_key_pem=b"" if certificates else _alipay_keys(settings),
                certificates=certificates,
            ),
            limits=limits,
        )
    except CertificateError as error:
        field = _CERTIFICATE_FILES[error.which]
        raise ConfigError(f"{_env('alipay', field)}: {settings[field]}: {error.problem}.") from error


def _app_key(settings: Settings) -> bytes:
    return _pem("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"], key_files.private_key)


def _alipay_keys(settings: Settings) -> bytes:
    """Alipay's public keys; its console shows our own beside it, so that one is told from it."""
    if _certificates_set(settings):
        return b""
    name, file = "ALIPAY_PUBLIC_KEY_FILE", settings["PUBLIC_KEY_FILE"]
    pem = _pem(name, file, key_files.public_keys)
    try:
        own = key_files.private_key(_bytes("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"])).public_key()
    except ValueError:
        return pem  # told already, with the other's name
    if own in key_files.public_keys(pem):
        raise ConfigError(f"{name}: {file} holds our application's own public key; Alipay's belongs here.")
    return pem


def _certificates_set(settings: Settings) -> list[str]:
    return [field for field in _CERTIFICATE_FILES.values() if settings.get(field)]


def _certificates(settings: Settings) -> CertificatePems | None:
    """The three files of certificate mode; None in key mode, where none of them is set."""
    given = _certificates_set(settings)
    if not given:
        return None
    for field in _CERTIFICATE_FILES.values():
        if field not in given:
            known = ", ".join(_env("alipay", other) for other in given)
            raise ConfigError(
                f"{_env('alipay', field)} is not set, but {known} is: certificate mode needs all three."
            )

    def read(which: str) -> bytes:
        field = _CERTIFICATE_FILES[which]
        return _bytes(_env("alipay", field), settings[field])

    return CertificatePems(app=read(APP), platform=read(PLATFORM), root=read(ROOT))


def _stripe(settings: Settings, limits: Limits) -> Provider:
    config = StripeConfig(
        api_url=_stripe_url(settings),
        secret_key=stripe_key(settings),
        webhook_secrets=_webhook_secrets(settings),
        method=_stripe_method(settings),
        account=settings.get("ACCOUNT", "stripe"),
    )
    return StripeIntents(config, limits=limits)


def _stripe_method(settings: Settings) -> str:
    method = settings.get("METHOD", METHODS[0])
    if method not in METHODS:
        raise ConfigError(f"STRIPE_METHOD must be one of {', '.join(METHODS)}, not {method!r}.")
    return method


def _stripe_url(settings: Settings) -> str:
    """Every call carries the key, so a live one never goes over a line that anybody can read."""
    url = _url("stripe", "API_URL", settings)
    if not url.startswith("https://") and "_live_" in stripe_key(settings):
        raise ConfigError("STRIPE_API_URL must begin with https:// where STRIPE_SECRET_KEY is a live key.")
    return url


def stripe_key(settings: Settings) -> str:
    """The API key. Raises ConfigError for what is none of ours."""
    key = _secret("stripe", "SECRET_KEY", settings)
    name = "STRIPE_SECRET_KEY_FILE" if settings.get("SECRET_KEY_FILE") else "STRIPE_SECRET_KEY"
    if key.startswith("pk_"):
        raise ConfigError(f"{name} holds a publishable key (pk_…); the secret one (sk_… or rk_…) belongs here.")
    if key.startswith("whsec_"):
        raise ConfigError(f"{name} holds a webhook secret (whsec_…); that one belongs into STRIPE_WEBHOOK_SECRET.")
    if not _VISIBLE.fullmatch(key):
        raise ConfigError(f"{name} must hold one key of visible characters, and nothing else.")
    return key


def _webhook_secrets(settings: Settings) -> tuple[str, ...]:
    found = tuple(_secret("stripe", "WEBHOOK_SECRET", settings).replace(",", " ").split())
    if any(secret.startswith(("sk_", "rk_", "pk_")) for secret in found):
        name = "STRIPE_WEBHOOK_SECRET_FILE" if settings.get("WEBHOOK_SECRET_FILE") else "STRIPE_WEBHOOK_SECRET"
        raise ConfigError(f"{name} holds an API key; the endpoint's signing secret (whsec_…) belongs here.")
    return found


_VISIBLE = re.compile(r"[!-~]+")


def _secret(channel: str, field: str, settings: Settings) -> str:
    """The secret of `field`, or of the file that ``FIELD_FILE`` names. What is in it is never told."""
    name, value, file = _env(channel, field), settings.get(field, ""), settings.get(f"{field}_FILE", "")
    if value and file:
        raise ConfigError(f"{name} and {name}_FILE are both set; set one of them.")
    if not value and not file:
        raise ConfigError(f"Neither {name} nor {name}_FILE is set, but other settings of {channel} are.")
    secret = value or _bytes(f"{name}_FILE", file).decode(errors="replace")
    if not secret.strip(", \t\r\n"):
        raise ConfigError(f"{name}_FILE: {file} is empty." if file else f"{name} is empty.")
    return secret.strip()


_BUILDERS: dict[str, Callable[[Settings, Limits], Provider]] = {
    "wechat": _wechat,
    "alipay": _alipay,
    "stripe": _stripe,
}


# what can be read by itself, so that one mistake does not hide another
_PARTS: dict[str, tuple[Callable[[Settings], object], ...]] = {
    "wechat": (partial(_url, "wechat", "API_URL"), _api_v3_keys, _mch_pair, _valid_platform_keys),
    "alipay": (partial(_url, "alipay", "GATEWAY_URL"), _app_key, _alipay_keys, _certificates),
    "stripe": (_stripe_url, stripe_key, _webhook_secrets, _stripe_method),
}


def _pem(name: str, file: str, load: Callable[[bytes], object]) -> bytes:
    """The bytes of `file`, tried with `load`, a function of `key_files`. What is in it is never told."""
    content = _bytes(name, file)
    try:
        load(content)
    except ValueError as error:
        raise ConfigError(f"{name}: {file} {error}.") from error
    return content


def _bytes(name: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {file} cannot be read: {error.strerror}.") from error


def _env(channel: str, field: str) -> str:
    return f"{channel.upper()}_{field}"
