"""For the tests of a project: nothing remembered between two tests, clients that send keys, and `assert_once`.

The public names; `idempotency.testing.fixtures` has the same for pytest, and is the only module that imports it.
They are imported on first use: a `conftest.py` may name the fixtures before Django is set up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idempotency.testing.clients import KeyedClient, KeyedRequests
    from idempotency.testing.forgetting import IdempotencyTestMixin, forget
    from idempotency.testing.trials import assert_once

__all__ = ["IdempotencyTestMixin", "KeyedClient", "KeyedRequests", "assert_once", "forget"]

_HOMES = {
    "IdempotencyTestMixin": "forgetting",
    "KeyedClient": "clients",
    "KeyedRequests": "clients",
    "assert_once": "trials",
    "forget": "forgetting",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
