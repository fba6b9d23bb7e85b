"""Fields of a channel's settings; every mistake is reported under its environment setting."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

Settings = Mapping[str, str]


class ConfigError(ValueError):
    """Unusable settings of a channel; the message names the setting and the mistake."""


def url(channel: str, field: str, settings: Settings) -> str:
    """Read an absolute address, without a slash at its end."""
    value = settings[field]
    if mistake := mistake_in(value) or ("must not hold ? or #." if {"?", "#"} & {*value} else ""):
        raise ConfigError(f"{env_name(channel, field)} {mistake}")
    return value.rstrip("/")


def mistake_in(url: str) -> str:
    """Say what an absolute address must be or not hold; empty where it is sound."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        return "must be an absolute http(s) address."
    return "must not hold a user or password." if "@" in parts.netloc else ""  # it would appear in logs


def is_loopback(url: str) -> bool:
    """Check that `url` points at this machine; False for what is no address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def secret(channel: str, field: str, settings: Settings) -> str:
    """Read a secret: `field`, or the file that ``FIELD_FILE`` names. No message shows it."""
    name, value, file = env_name(channel, field), settings.get(field, ""), settings.get(f"{field}_FILE", "")
    if value and file:
        raise ConfigError(f"{name} and {name}_FILE are both set; set one of them.")
    if not value and not file:
        raise ConfigError(f"Neither {name} nor {name}_FILE is set, but other settings of {channel} are.")
    secret = value or content(f"{name}_FILE", file).decode(errors="replace")
    if not secret.strip(", \t\r\n"):
        raise ConfigError(f"{name}_FILE: {file} is empty." if file else f"{name} is empty.")
    return secret.strip()


def pem(name: str, file: str, load: Callable[[bytes], object]) -> bytes:
    """Read `file` and check it by `load` of `key_files`. No message shows its content."""
    found = content(name, file)
    try:
        load(found)
    except ValueError as error:
        raise ConfigError(f"{name}: {file} {error}.") from error
    return found


def content(name: str, file: str) -> bytes:
    """Read the file that the setting `name` names."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {file} cannot be read: {error.strerror}.") from error


def env_name(channel: str, field: str) -> str:
    return f"{channel.upper()}_{field}"
