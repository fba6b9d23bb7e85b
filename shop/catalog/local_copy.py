"""A value that every process keeps in its memory for a while, and reads again when it hears of a change.

What is told is a hint. It may be lost while Redis is away; then a copy is wrong for as long as it lives, and no
longer. So this is for what may be shown a little late, and nothing may be decided on it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from idempotency.locks import Topic
from payments.channels.sharing import client_to_listen, shared

T = TypeVar("T")


class LocalCopy(Generic[T]):
    """One value of one process, for its threads. No thread of its own: who reads first takes what was told.

    A forked child begins without a copy, and listens for itself.

    Args:
        name: of the topic, the same in all processes.
        read: makes the value; one thread at a time calls it, the others wait for its result.
        seconds: tells how long a copy lives.
    """

    def __init__(self, name: str, *, read: Callable[[], T], seconds: Callable[[], float]) -> None:
        self.name = name
        self._read = read
        self._seconds = seconds
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()  # a fork may have copied it while it was held
        self._value: T | None = None
        self._ends_at = 0.0
        self._last_change = self._read_after = object()  # what was read before the last known one is no answer
        self._messages: Any = None
        self._listening = contextlib.ExitStack()

    def close(self) -> None:
        """Give up the copy, and hear of no more changes until the next `get`."""
        self._listening.close()
        self._begin()

    def get(self) -> T:
        """The value, no older than a copy's life, and read after the last change that this process knows of."""
        with self._lock:
            self._listen()
            self._hear()
            now, change = time.monotonic(), self._last_change
            if self._value is None or self._read_after is not change or now >= self._ends_at:
                self._value = self._read()
                self._ends_at, self._read_after = now + self._seconds(), change
            return self._value

    def forget(self) -> None:
        """The value has changed; tells this process alone. Does not wait for who reads it just now."""
        self._last_change = object()

    def tell(self) -> None:
        """The value has changed: tell every process. After the commit, or they read too early."""
        self.forget()
        # safe without: their copies end by themselves
        shared(f"local copy {self.name}", lambda redis: Topic(self.name, client=redis).tell(""), otherwise=None)

    def _listen(self) -> None:
        """Hear of changes from now on; while Redis is away the subscriber tries again by itself."""
        if self._messages is None and (redis := client_to_listen()) is not None:
            self._messages = self._listening.enter_context(Topic(self.name, client=redis).listen())

    def _hear(self) -> None:
        if self._messages is None:
            return
        with contextlib.suppress(TimeoutError):
            while True:
                self._messages.take(wait_seconds=0)
                self.forget()
