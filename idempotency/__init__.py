"""Idempotency keys, a ledger that decides, Redis markers, one-time tokens and distributed locks for Django.

The public names. They are imported on first use, so that naming the app in `INSTALLED_APPS` needs no Django yet.
The modules `views`, `drf`, `ninja`, `middleware`, `locks`, `cachedmap`, `client`, `maintenance`, `webhooks` and
`testing` are public too; everything else is private.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idempotency.call import KeyedCall, call_of
    from idempotency.errors import InProgress, KeyReused, Problem, ResultExpired
    from idempotency.functions import once
    from idempotency.inbox import consume_once
    from idempotency.middleware import IdempotencyMiddleware
    from idempotency.modes import Mode
    from idempotency.protocol.recovery import NoOp, Phases, Progress, RecoveryPoint, Response
    from idempotency.views import idempotent, not_keyed

__all__ = [
    "IdempotencyMiddleware",
    "InProgress",
    "KeyReused",
    "KeyedCall",
    "Mode",
    "NoOp",
    "Phases",
    "Problem",
    "Progress",
    "RecoveryPoint",
    "Response",
    "ResultExpired",
    "call_of",
    "consume_once",
    "idempotent",
    "not_keyed",
    "once",
]

_HOMES = {
    "call": ["KeyedCall", "call_of"],
    "errors": ["InProgress", "KeyReused", "Problem", "ResultExpired"],
    "functions": ["once"],
    "inbox": ["consume_once"],
    "middleware": ["IdempotencyMiddleware"],
    "modes": ["Mode"],
    "protocol.recovery": ["NoOp", "Phases", "Progress", "RecoveryPoint", "Response"],
    "views": ["idempotent", "not_keyed"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
