"""Registration of system checks: each message leads to its heading on the page that explains it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage

# in the repository; where the pages are published, their address stands here alone
PAGE = "docs/reference/{app}-checks.md"

Check = Callable[..., list[CheckMessage]]


def register(*tags: str, deploy: bool = False) -> Callable[[Check], Check]:
    """Register a system check as Django does; each hint ends with the address of the message's id."""

    def decorate(check: Check) -> Check:
        @wraps(check)
        def explained(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
            return [_with_address(message) for message in check(app_configs, **kwargs)]

        checks.register(explained, *tags, deploy=deploy)
        return explained

    return decorate


def address_of(number: str) -> str:
    """Build the address of a check's heading from its id, such as ``idempotency.E001``."""
    app = number.partition(".")[0]
    return f"{PAGE.format(app=app)}#{number.replace('.', '').lower()}"  # as sites and code hosts make anchors


def _with_address(message: CheckMessage) -> CheckMessage:
    see = f"See {address_of(str(message.id))}"
    message.hint = f"{message.hint} {see}" if message.hint else see
    return message
