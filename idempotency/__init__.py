"""Idempotency keys, a ledger that decides, one-time tokens and distributed locks.

The public names. They are imported on first use, so that naming the app in `INSTALLED_APPS` needs no Django yet.
The modules `views`, `drf`, `ninja`, `middleware`, `locks`, `cachedmap`, `client`, `maintenance`, `webhooks` and
`testing` are public too; everything else is private.
"""

from typing import TYPE_CHECKING

from idempotency.extras import on_first_use

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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "call": ["KeyedCall", "call_of"],
        "errors": ["InProgress", "KeyReused", "Problem", "ResultExpired"],
        "functions": ["once"],
        "inbox": ["consume_once"],
        "middleware": ["IdempotencyMiddleware"],
        "modes": ["Mode"],
        "protocol.recovery": ["NoOp", "Phases", "Progress", "RecoveryPoint", "Response"],
        "views": ["idempotent", "not_keyed"],
    },
)
