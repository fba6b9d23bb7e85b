"""Tools for a project's tests: a clean start, clients that send keys, `assert_once`.

The public names; `idempotency.testing.fixtures` has the same for pytest, and is the only module that imports it.
They are imported on first use: a `conftest.py` may name the fixtures before Django is set up.
"""

from typing import TYPE_CHECKING

from idempotency.extras import on_first_use

if TYPE_CHECKING:
    from idempotency.testing.clients import IdempotencyTestMixin, KeyedClient, KeyedRequests, forget
    from idempotency.testing.trials import assert_once

__all__ = ["IdempotencyTestMixin", "KeyedClient", "KeyedRequests", "assert_once", "forget"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "clients": ["IdempotencyTestMixin", "KeyedClient", "KeyedRequests", "forget"],
        "trials": ["assert_once"],
    },
)
