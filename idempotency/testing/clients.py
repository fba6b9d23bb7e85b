"""Clean start of a project's tests, and clients whose unsafe requests carry a key.

Nothing is deleted and no query runs: this process uses names in Redis that no test before has used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import uuid4

from django.test import Client

from idempotency.conf import config
from idempotency.ledger.claiming import use_local_epoch
from idempotency.redis.fastpath import breaker
from idempotency.request.keys import SAFE_METHODS


class KeyedRequests:
    """Mixin for a test client, also async: ``class KeyedAPIClient(KeyedRequests, APIClient)``.

        client.post("/orders/", {"sku": "mug"})  # a fresh key
        client.post("/orders/", {"sku": "mug"}, key="k1")
        client.post("/orders/", {"sku": "mug"}, key=None)  # no key
        client.again()

    Attributes:
        last_key: key of the last unsafe request; None if it had none.
    """

    last_key: str | None = None
    _last: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def generic(self, method: str, *args: Any, key: str | None = "", headers: Any = None, **options: Any) -> Any:
        """Send a request, as Django's clients do for every method.

        Args:
            key: of an unsafe request; empty: that of `headers`, else a fresh one; None: none.
        """
        if method not in SAFE_METHODS:
            headers, name = dict(headers or {}), config().header
            own = [headers.pop(each) for each in list(headers) if each.lower() == name.lower()]
            self.last_key = (own or [uuid4().hex])[-1] if key == "" else key
            if self.last_key is not None:
                headers[name] = self.last_key
            self._last = (method, *args), {"headers": headers, **options}
        return super().generic(method, *args, headers=headers, **options)  # type: ignore[misc]

    def again(self) -> Any:
        """Send the last unsafe request once more: the same bytes under the same key.

        Raises:
            RuntimeError: there was none.
        """
        if self._last is None:
            raise RuntimeError("There is nothing to send again: this client has sent no unsafe request.")
        args, options = self._last
        return self.generic(*args, key=self.last_key, **options)


class KeyedClient(KeyedRequests, Client):
    """Django's test client, whose unsafe requests carry a fresh key each; see `KeyedRequests`."""


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
