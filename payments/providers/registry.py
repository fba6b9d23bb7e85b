"""From settings to provider objects; every mistake is told with the name of its environment setting."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from payments.providers import rsa
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
        if channel not in _BUILDERS:
            raise ConfigError(f"{channel!r} is not a payment channel; known are {', '.join(sorted(_BUILDERS))}.")
        for name, value in settings.items():
            if not value and not (
                channel == "alipay" and name == "PUBLIC_KEY_FILE" and _certificates_set(settings)
            ):
                raise ConfigError(f"{_env(channel, name)} is not set, but other settings of {channel} are.")
        built[channel] = _BUILDERS[channel](settings, partial(limits, channel))
    return built


def _wechat(settings: Settings, limits: Limits) -> Provider:
    return WeChatPay(
        WeChatConfig(
            api_url=settings["API_URL"].rstrip("/"),
            mch_id=settings["MCH_ID"],
            app_id=settings["APP_ID"],
            mch_serial=settings["MCH_SERIAL"],
            api_v3_keys=_api_v3_keys(settings),
            mch_private_key_pem=_pem("WECHAT_MCH_KEY_FILE", settings["MCH_KEY_FILE"], rsa.load_private_key),
            platform_keys=_platform_keys(Path(settings["PLATFORM_KEYS_DIR"])),
        ),
        limits=limits,
    )


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


def _platform_keys(folder: Path) -> dict[str, bytes]:
    name = "WECHAT_PLATFORM_KEYS_DIR"
    if not folder.is_dir():
        raise ConfigError(f"{name}: {folder} is not a folder.")
    keys = {}
    for path in sorted(folder.glob("*.pem")):
        serial = path.stem
        if not serial.startswith(PUBLIC_KEY_PREFIX) and not SERIAL.fullmatch(serial):
            raise ConfigError(
                f"{name}: {path.name} is named neither <HEXSERIAL>.pem nor {PUBLIC_KEY_PREFIX}….pem."
            )
        keys[serial] = _pem(f"{name}/{path.name}", str(path), rsa.load_public_key)
        try:
            KeyRing({serial: keys[serial]})
        except ValueError as error:
            raise ConfigError(f"{name}: {path.name} is not what its name says: {error}.") from error
    if not keys:
        raise ConfigError(f"{name}: {folder} holds no .pem file.")
    return keys


_CERTIFICATE_FILES = {APP: "APP_CERT_FILE", PLATFORM: "PUBLIC_CERT_FILE", ROOT: "ROOT_CERT_FILE"}


def _alipay(settings: Settings, limits: Limits) -> Provider:
    certificates = _certificates(settings)
    try:
        return Alipay(
            AlipayConfig(
                gateway_url=settings["GATEWAY_URL"],
                app_id=settings["APP_ID"],
                seller_id=settings["SELLER_ID"],
                app_private_key_pem=_pem("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"], rsa.load_private_key),
                alipay_public_key_pem=b""
                if certificates
                else _pem("ALIPAY_PUBLIC_KEY_FILE", settings["PUBLIC_KEY_FILE"], rsa.load_public_keys),
                certificates=certificates,
            ),
            limits=limits,
        )
    except CertificateError as error:
        field = _CERTIFICATE_FILES[error.which]
        raise ConfigError(f"{_env('alipay', field)}: {settings[field]}: {error.problem}.") from error


def _certificates_stand_for(field: str, settings: Settings) -> bool:
    """Whether certificate mode makes do without `field`."""
    return field == "PUBLIC_KEY_FILE" and bool(_certificates_set(settings))


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
        api_url=settings["API_URL"].rstrip("/"),
        secret_key=_secret("stripe", "SECRET_KEY", settings),
        webhook_secrets=tuple(_secret("stripe", "WEBHOOK_SECRET", settings).replace(",", " ").split()),
        method=settings.get("METHOD", METHODS[0]),
        account=settings.get("ACCOUNT", "stripe"),
    )
    if config.method not in METHODS:
        raise ConfigError(f"STRIPE_METHOD must be one of {', '.join(METHODS)}, not {config.method!r}.")
    # every call carries the key, so a real one never goes over a line that anybody can read
    if "_live_" in config.secret_key and not config.api_url.startswith("https://"):
        raise ConfigError("STRIPE_API_URL must begin with https:// where STRIPE_SECRET_KEY is a live key.")
    return StripeIntents(config, limits=limits)


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


def _pem(name: str, file: str, load: Callable[[bytes], object]) -> bytes:
    """The bytes of `file`, tried with `load`. What is in it is never told."""
    content = _bytes(name, file)
    try:
        load(content)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {file} is not the RSA key in PEM form that is needed.") from error
    return content


def _bytes(name: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {file} cannot be read: {error.strerror}.") from error


def _env(channel: str, field: str) -> str:
    return f"{channel.upper()}_{field}"
