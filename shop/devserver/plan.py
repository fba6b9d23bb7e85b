"""Plan of `make run`: its ports and folders, and the environment of its processes."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import environ

from payments.providers.settings_fields import is_loopback
from payments.sandbox import keys

PORT_MAX = 65_535
PORT_STEP = 10  # a second web process listens on PORT + 10, a third on PORT + 20

_SANDBOX_PATHS = {
    "WECHAT_API_URL": "/wechat",
    "ALIPAY_GATEWAY_URL": "/alipay/gateway.do",
    "STRIPE_API_URL": "/stripe",
}


class RunError(Exception):
    """A start or run that cannot go on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Ports and data folder that the environment asks for; one of `ports` a web process."""

    ports: tuple[int, ...]
    sandbox_port: int
    data_dir: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Plan":
        """Read the environment. Raises RunError, which names the setting."""
        first = _number(environment, "PORT", 8000, most=PORT_MAX)
        count = _number(environment, "WEB", 1, most=32)
        sandbox_port = _number(environment, "SANDBOX_PORT", 8001, most=PORT_MAX)
        ports = tuple(first + PORT_STEP * index for index in range(count))
        if sandbox_port in ports:
            raise RunError(f"SANDBOX_PORT {sandbox_port} is also a web port ({', '.join(map(str, ports))}).")
        if ports[-1] > PORT_MAX:
            raise RunError(f"PORT {first} leaves no room for WEB {count}: the last one would be {ports[-1]}.")
        data_dir = Path(environment.get("DATA_DIR") or ".data").resolve()
        return cls(ports=ports, sandbox_port=sandbox_port, data_dir=data_dir)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def sandbox_url(self) -> str:
        return f"http://127.0.0.1:{self.sandbox_port}"


def _number(environment: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    text = environment.get(name, "") or str(default)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise RunError(f"{name} must be a whole number from 1 to {most}, not {text!r}.")
    return int(text)


def complete(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """Complete `environment` for the processes; point unset channel settings at the sandbox.

    A loopback address may be the sandbox behind a proxy. With `DEBUG` off a channel that is half set
    is left so, and stops the start.

    Raises:
        RunError: `DEBUG` is off, and the secret is for the operator to set.
    """
    full = {**environment}
    for name, value in {
        "DEBUG": "1",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONUNBUFFERED": "1",
        "PUBLIC_URL": plan.url,
        "DATA_DIR": str(plan.data_dir),
    }.items():
        full[name] = full.get(name) or value
    if not full.get("SECRET_KEY"):
        if not is_debug(full):
            raise RunError("SECRET_KEY is not set; with DEBUG off set it to at least 50 random characters.")
        full["SECRET_KEY"] = _stored_secret(plan.data_dir / "secret_key")
    made = keys.ensure(plan.data_dir / "sandbox")
    for url, path in _SANDBOX_PATHS.items():
        channel = url.partition("_")[0] + "_"
        names = [name for name in made if name.startswith(channel)]
        unset = [name for name in names if not (full.get(name) or full.get(f"{name}_FILE"))]
        elsewhere = full.get(url) and not is_loopback(full[url])
        if elsewhere or (unset != names and not is_debug(full)):
            continue
        full |= {name: made[name] for name in unset}
        full[url] = full.get(url) or plan.sandbox_url + path
        full["SANDBOX_URL"] = plan.sandbox_url
    return full


def is_debug(environment: Mapping[str, str]) -> bool:
    """Return whether the processes run with `DEBUG` on; read as `shop.settings` reads it."""
    return environment["DEBUG"].lower().strip() in environ.Env.BOOLEAN_TRUE_STRINGS


def _stored_secret(path: Path) -> str:
    """Read or make a random secret, so that sessions and tokens survive a restart."""
    if not path.exists():
        made = path.with_suffix(".new")
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(50))
        made.rename(path)
    return path.read_text()
