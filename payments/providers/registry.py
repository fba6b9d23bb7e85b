"""From settings to provider objects; every mistake is told with the name of its environment setting."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from payments.providers import rsa
from payments.providers.alipay import Alipay, AlipayConfig
from payments.providers.base import Provider
from payments.providers.transport import Limits
from payments.providers.wechat import PUBLIC_KEY_PREFIX, WeChatConfig, WeChatPay

Settings = Mapping[str, str]

_SERIAL = re.compile(r"[0-9A-F]{8,64}")


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
            if not value:
                raise ConfigError(f"{_env(channel, name)} is not set, but other settings of {channel} are.")
        built[channel] = _BUILDERS[channel](settings, partial(limits, channel))
    return built


def _wechat(settings: Settings, limits: Limits) -> Provider:
    key = settings["API_V3_KEY"].encode()
    if len(key) != 32:
        raise ConfigError(f"WECHAT_API_V3_KEY must have 32 bytes, not {len(key)}.")
    return WeChatPay(
        WeChatConfig(
            api_url=settings["API_URL"].rstrip("/"),
            mch_id=settings["MCH_ID"],
            app_id=settings["APP_ID"],
            mch_serial=settings["MCH_SERIAL"],
            api_v3_key=key,
            mch_private_key_pem=_pem("WECHAT_MCH_KEY_FILE", settings["MCH_KEY_FILE"], rsa.load_private_key),
            platform_keys=_platform_keys(Path(settings["PLATFORM_KEYS_DIR"])),
        ),
        limits=limits,
    )


def _platform_keys(folder: Path) -> dict[str, bytes]:
    name = "WECHAT_PLATFORM_KEYS_DIR"
    if not folder.is_dir():
        raise ConfigError(f"{name}: {folder} is not a folder.")
    keys = {}
    for path in sorted(folder.glob("*.pem")):
        serial = path.stem
        if not serial.startswith(PUBLIC_KEY_PREFIX) and not _SERIAL.fullmatch(serial):
            raise ConfigError(
                f"{name}: {path.name} is named neither <HEXSERIAL>.pem nor {PUBLIC_KEY_PREFIX}….pem."
            )
        keys[serial] = _pem(f"{name}/{path.name}", str(path), rsa.load_public_key)
    if not keys:
        raise ConfigError(f"{name}: {folder} holds no .pem file.")
    return keys


def _alipay(settings: Settings, limits: Limits) -> Provider:
    return Alipay(
        AlipayConfig(
            gateway_url=settings["GATEWAY_URL"],
            app_id=settings["APP_ID"],
            seller_id=settings["SELLER_ID"],
            app_private_key_pem=_pem("ALIPAY_APP_KEY_FILE", settings["APP_KEY_FILE"], rsa.load_private_key),
            alipay_public_key_pem=_pem("ALIPAY_PUBLIC_KEY_FILE", settings["PUBLIC_KEY_FILE"], rsa.load_public_key),
        ),
        limits=limits,
    )


_BUILDERS: dict[str, Callable[[Settings, Limits], Provider]] = {"wechat": _wechat, "alipay": _alipay}


def _pem(name: str, file: str, load: Callable[[bytes], object]) -> bytes:
    """The bytes of `file`, tried with `load`. What is in it is never told."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {file} cannot be read: {error.strerror}.") from error
    try:
        load(content)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {file} is not the RSA key in PEM form that is needed.") from error
    return content


def _env(channel: str, field: str) -> str:
    return f"{channel.upper()}_{field}"
