"""Copies of what a page shows, in the memory of each process: late at worst, and nothing is decided on them.

Ordering, the API and the page of one product read the database, so what a process has acknowledged every other
one answers. A change of text or price, and units that come back, reach the copies of all processes at once. An
order renews its own process's copy alone, because a message for each would cost more than it helps: elsewhere its
units show up to `CATALOGUE_SECONDS` late, as everything does after a lost message.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import connection, transaction

from idempotency.locks import Topic
from payments.channels.sharing import client_to_listen, shared
from shop.catalog.listings import Listing, read_listings

T = TypeVar("T")

NAMES_MAX = 100  # of one cache, so that requests for random names do not fill the memory


class Cache(Generic[T]):
    """Values by name for the threads of one process; a forked child begins with none.

    One thread at a time reads, the others wait for its value.

    Args:
        topic: where `publish` reaches the same cache of other processes; empty: changes stay in this process.
    """

    def __init__(self, topic: str = "") -> None:
        self._topic = topic
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()  # a fork may have copied it while it was held
        self._values: dict[str, tuple[T, float, object]] = {}  # value, its end by the monotonic clock, last change
        self._last_change = object()
        self._messages: Any = None
        self._listening = contextlib.ExitStack()

    def close(self) -> None:
        """Drop the values and stop listening until the next `get`."""
        self._listening.close()
        self._begin()

    def get(self, name: str, read: Callable[[], tuple[T, float]]) -> T:
        """Return the value of `name`, read after the last change that this process has heard of.

        Args:
            name: of the value.
            read: returns a fresh value and the seconds it may be shown; if it raises, nothing is stored.
        """
        with self._lock:
            self._listen()
            now, change = time.monotonic(), self._last_change
            value, ends_at, read_after = self._values.get(name, (None, 0.0, None))
            if value is not None and read_after is change and now < ends_at:
                return value
            value, seconds = read()
            if len(self._values) >= NAMES_MAX:
                self._values.clear()
            # a change during the read leaves a value that the next `get` reads again
            self._values[name] = value, now + seconds, change
            return value

    def forget(self) -> None:
        """Have every value read again, in this process; does not wait for a read under way."""
        self._last_change = object()

    def publish(self) -> None:
        """Have every process read again. Call it after the commit, or they read too early."""
        self.forget()
        # safe without Redis: the copies end by themselves
        what, topic = f"local copy {self._topic}", self._topic
        shared(what, lambda redis: Topic(topic, client=redis).tell(""), otherwise=None)

    def _listen(self) -> None:
        """Take what other processes have published; while Redis is away the subscriber retries by itself."""
        if self._topic and self._messages is None and (redis := client_to_listen()) is not None:
            self._messages = self._listening.enter_context(Topic(self._topic, client=redis).listen())
        if self._messages is None:
            return
        with contextlib.suppress(TimeoutError):
            while True:
                self._messages.take(wait_seconds=0)
                self.forget()


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """The products of the catalogue's page, and the HTML rendered from them."""

    listings: list[Listing]
    rendered: dict[str, str] = field(default_factory=dict)


_catalogue: Cache[_Catalogue] = Cache("catalogue")


def rendered(render: Callable[[list[Listing]], str], *, name: str) -> str:
    """Return `render` of the products, stored as long as they are: rendering costs more than reading.

    Threads that meet a new copy together each render it.

    Args:
        render: is given the first products as this process knows them, liked by nobody.
        name: of the result, with all that it depends on besides; never the user.
    """
    current = _current()
    if name not in current.rendered:
        current.rendered[name] = render(current.listings)
    return current.rendered[name]


def publish_change() -> None:
    """Renew the catalogue's page in every process, once the caller's transaction has committed."""
    transaction.on_commit(_catalogue.publish, robust=True)


def forget_copy() -> None:
    """Renew the catalogue's page in this process, once the caller's transaction has committed."""
    transaction.on_commit(_catalogue.forget)


def _current() -> _Catalogue:
    # a transaction may hold writes that nobody else may see yet
    if settings.CATALOGUE_SECONDS == 0 or connection.in_atomic_block:
        return _read()
    return _catalogue.get("", lambda: (_read(), settings.CATALOGUE_SECONDS))


def _read() -> _Catalogue:
    return _Catalogue(read_listings())
