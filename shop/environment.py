"""Environment of a process, read for `shop.settings`; a mistake stops the start.

The sentence names it, and shows no address that may hold a password.
"""

import json
import re
from collections.abc import Callable, Container, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import django
import environ
from django.core.exceptions import ImproperlyConfigured
from django.http.request import split_domain_port

from payments.providers import registry
from payments.providers.settings_fields import env_name

SECRET_LENGTH = 50
LETTERS_LEAST = 5  # different ones, as in Django's own check
_OF_A_TEMPLATE = re.compile(r"^\s*django-insecure-|change[-_ ]?me", re.IGNORECASE)
_OFF = ("", "0", "false", "off", "no", "n")
_MAIL_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# of a connection to PostgreSQL: a machine that is gone is noticed after 25 s, and no hung statement holds
# a row for ever; the ledger's own waits are far shorter
_LIMITS = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "options": "-c statement_timeout=15000 -c idle_in_transaction_session_timeout=30000",
}

T = TypeVar("T")


class Environment(environ.Env):  # type: ignore[misc]  # environ has no types
    """Typed readers of variables; each raises `ImproperlyConfigured` for a value of no use."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        # a secret may hold a dollar sign: nothing in the environment names another one; blanks set nothing
        self.escape_proxy = True
        self.ENVIRON = {name: value.strip().replace("$", r"\$") for name, value in variables.items()}
        self.debug = self.flag("DEBUG")

    def flag(self, name: str) -> bool:
        text: str = self.str(name, default="").lower()
        if text not in (*self.BOOLEAN_TRUE_STRINGS, *_OFF):
            raise ImproperlyConfigured(f"{name} must be 1 or 0, not {text!r}.")
        return text not in _OFF

    def required(self, name: str) -> str:
        value: str = self.str(name, default="")
        if not value:
            raise ImproperlyConfigured(f"{name} is not set (`make run` sets it to the servers that it starts).")
        return value

    def check_secret(self, name: str, secret: str) -> None:
        """Refuse a key that is easy to guess, and without `DEBUG` a demo's."""
        self._refuse_demo(name, secret)
        if len(secret) < SECRET_LENGTH:
            raise ImproperlyConfigured(
                f"{name} has {len(secret)} characters; at least {SECRET_LENGTH} are needed."
            )
        if len(set(secret)) < LETTERS_LEAST:
            raise ImproperlyConfigured(f"{name} repeats a few characters; set it to random ones.")

    def count(self, name: str, *, default: int) -> int:
        wanted = "a whole number from 1 to 1000000"
        return int(self._read(name, lambda text: _within(_digits(text), 1, 10**6), wanted, default=str(default)))

    def seconds(self, name: str, *, default: float, longest: float) -> float:
        wanted = f"a number of seconds from 0 to {longest:g}"
        return self._read(name, lambda text: _within(float(text), 0, longest), wanted, default=str(default))

    def log_level(self, name: str) -> str:
        wanted, levels = f"one of {', '.join(_LOG_LEVELS)}", "|".join(_LOG_LEVELS)
        return self._read(name, lambda text: _matching(levels, text.upper()), wanted, default="INFO")

    def web_address(self, name: str, *, default: str = "") -> SplitResult:
        text: str = self.str(name, default=default)
        try:
            parts = _split(text, {"http", "https"})
            is_one = text.isascii() and not re.search(r"[\s@?#]", text)
        except ValueError:
            is_one = False
        if not is_one:  # it may hold a password
            raise ImproperlyConfigured(
                f"{name} must be an absolute http(s) address such as https://shop.example, without blanks, @, ?"
                " and # (xn--… for letters that are not ASCII)."
            )
        return parts

    def parts(self, name: str) -> list[str]:
        """Read values with commas between them."""
        return [part for one in self.list(name, default=[]) if (part := one.strip())]

    def document(self, name: str) -> dict[str, Any]:
        """Read a JSON object; it may hold secrets."""
        try:
            found = json.loads(self.str(name, default="") or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ImproperlyConfigured(f"{name} must be a JSON object.")
        return found

    def hosts(self, name: str) -> list[str]:
        hosts = self.parts(name)
        for host in hosts:
            domain, port = split_domain_port(host)
            if port or (not domain and host != "*"):
                raise ImproperlyConfigured(
                    f"{name} must be host names with commas between them, without scheme, port and path"
                    f" (xn--… for letters that are not ASCII), not {host!r}."
                )
        return hosts

    def sender(self, name: str, *, default: str) -> str:
        wanted = "an address, as Shop <noreply@shop.example.com>"
        pattern = r".*[^\s@<]@[^\s@>]+>?"
        return self._read(name, lambda text: _matching(pattern, text or default), wanted, default=default)

    def named_keys(self, name: str) -> dict[str, str]:
        """Read ``<id>:<key>`` entries, by id; the first one is the current."""
        entries = self.parts(name)
        if not all(re.fullmatch(r"[^:\s]+:[^\s:]{43}=?", entry) for entry in entries):
            raise ImproperlyConfigured(
                f"{name} must be <key id>:<32 bytes in base64>, with commas between several."
            )
        return dict(entry.split(":") for entry in entries)

    def networks(self, name: str) -> list[Any]:
        text: str = self.str(name, default="")
        try:
            return [ip_network(part.strip()) for part in text.split(",")] if text else []
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} must be addresses or networks with commas between them: {error}."
            ) from None

    def database(self, name: str) -> dict[str, Any]:
        """Read the address of a PostgreSQL database as an entry of `DATABASES`."""
        url = self.required(name)
        try:
            config: dict[str, Any] = self.db_url_config(url)
            # a slash or question mark in the password ends what is taken for host and port
            cut_off = "@" in (config.get("NAME") or url.partition("?")[2])
        except ValueError:  # its message shows the URL
            cut_off = True
        if cut_off:
            raise ImproperlyConfigured(
                f"{name} cannot be read; percent-encode user and password, and see that the port is a number."
            )
        if config.get("ENGINE") != "django.db.backends.postgresql":
            raise ImproperlyConfigured(f"{name} must name a PostgreSQL database: postgresql://user@host/name.")
        options = config.get("OPTIONS", {})
        if not config.get("NAME") and "service" not in options:
            raise ImproperlyConfigured(f"{name} names no database; write postgresql://user@host/name.")
        return config | {"CONN_MAX_AGE": 60, "OPTIONS": _LIMITS | options}

    def mailer(self, name: str, *, folder: Path) -> dict[str, Any]:
        """Read the mail server as settings; without one, `DEBUG` writes files in `folder`."""
        address: str = self.str(name, default="")
        if not address and self.debug:
            return _mail_settings("filebased", {"file_path": folder})
        if not address:
            return _mail_settings("dummy", {})
        try:
            parts = _split(address, _MAIL_PORTS)
        except ValueError:
            raise ImproperlyConfigured(
                f"{name} must be as smtp+tls://user:password@host:587, user and password quoted."
            ) from None
        options = {
            "host": parts.hostname,
            "port": parts.port or _MAIL_PORTS[parts.scheme],
            "username": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "use_tls": parts.scheme == "smtp+tls",
            "use_ssl": parts.scheme == "smtps",
            "timeout": 10,
        }
        return _mail_settings("smtp", options)

    def channels(self) -> dict[str, dict[str, str]]:
        """Read the channels' fields that are set, as WECHAT_API_URL; checks name a missing one."""
        found: dict[str, dict[str, str]] = {}
        for channel in registry.names():
            plugin = registry.plugin(channel, {})
            for field in (*plugin.required, *plugin.optional):
                name = env_name(channel, field)
                if value := self.str(name, default=""):
                    self._refuse_demo(name, value)
                    found.setdefault(channel, {})[field] = value
        return found

    def _read(self, name: str, parse: Callable[[str], T], wanted: str, *, default: str) -> T:
        text: str = self.str(name, default=default)
        try:
            return parse(text)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be {wanted}, not {text!r}.") from None

    def _refuse_demo(self, name: str, value: str) -> None:
        if self.debug:
            return
        if value.strip().startswith("demo-only-"):
            raise ImproperlyConfigured(f"{name} still has its demo value; set it to random characters.")
        if _OF_A_TEMPLATE.search(value):
            raise ImproperlyConfigured(f"{name} still has a value from a template; set it to your own.")


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit()):  # `int` takes more than a person would write
        raise ValueError
    return int(text)


def _matching(pattern: str, text: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError
    return text


def _within(number: float, least: float, most: float) -> float:
    if not least <= number <= most:
        raise ValueError
    return number


def _split(address: str, schemes: Container[str]) -> SplitResult:
    """Split an absolute address; ValueError for any other."""
    parts = urlsplit(address)
    if parts.scheme not in schemes or not parts.hostname or parts.port == 0:
        raise ValueError
    return parts


def _mail_settings(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    backend = f"django.core.mail.backends.{kind}.EmailBackend"
    if django.VERSION >= (6, 1):
        return {"MAILERS": {"default": {"BACKEND": backend, "OPTIONS": options}}}
    older = {"username": "EMAIL_HOST_USER", "password": "EMAIL_HOST_PASSWORD"}  # a setting for each
    each = {older.get(name, f"EMAIL_{name.upper()}"): value for name, value in options.items()}
    return {"EMAIL_BACKEND": backend, **each}
