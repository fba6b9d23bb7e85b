"""Registration of system checks: each message leads to its heading in the documentation."""

from collections.abc import Callable, Iterable
from functools import wraps
from importlib.metadata import distributions
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage

PAGE = "reference/{app}-checks.md"

Check = Callable[..., list[CheckMessage]]


def register(*tags: str, deploy: bool = False) -> Callable[[Callable[..., Iterable[CheckMessage]]], Check]:
    """Register a system check, or a generator; hints end with the address of the message's id."""

    def decorate(check: Callable[..., Iterable[CheckMessage]]) -> Check:
        @wraps(check)
        def explained(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
            return [_with_address(message) for message in check(app_configs, **kwargs)]

        checks.register(explained, *tags, deploy=deploy)
        return explained

    return decorate


def address_of(number: str) -> str:
    """Build the address of a check's heading from its id, such as ``idempotency.E001``."""
    app = number.partition(".")[0]
    page = f"{documentation()}/{PAGE.format(app=app)}"
    return f"{page}#{number.replace('.', '').lower()}"  # as sites and code hosts make anchors


def documentation() -> str:
    """Return the address of `docs/` in a release's metadata; in a checkout, its path."""
    found = [line for each in distributions(name="payonce") for line in each.metadata.get_all("Project-URL", [])]
    addresses: dict[str, str] = dict(line.split(", ", 1) for line in found)
    return addresses.get("Documentation", "docs")


def _with_address(message: CheckMessage) -> CheckMessage:
    see = f"See PayOnce's page {address_of(str(message.id))}"
    message.hint = f"{message.hint} {see}" if message.hint else see
    return message
