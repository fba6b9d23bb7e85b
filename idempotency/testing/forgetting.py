"""Start with nothing remembered: this process uses names in Redis that no test before has used."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import uuid4

from idempotency.ledger.claiming import use_local_epoch
from idempotency.redis.fastpath import breaker
from idempotency.testing.clients import KeyedClient


def forget() -> None:
    """Forget, in this process, what Redis has of keys and payments; locks and rates stay."""
    use_local_epoch(uuid4().hex)
    breaker.succeeded()  # a test before may have met a Redis that was away


@contextmanager
def nothing_remembered() -> Iterator[None]:
    """Run the block with nothing remembered; what Redis had before is back after it."""
    former = use_local_epoch(None)
    forget()
    try:
        yield
    finally:
        use_local_epoch(former)


class IdempotencyTestMixin:
    """Mixin, before Django's test case: each test starts with nothing remembered.

    Attributes:
        keyed_client: client whose unsafe requests carry a fresh key each.
    """

    @cached_property
    def keyed_client(self) -> KeyedClient:
        return KeyedClient()

    def run(self, result: Any = None) -> Any:
        # not `setUp`, which a test case overrides without calling ours
        with nothing_remembered():
            return super().run(result)  # type: ignore[misc]
