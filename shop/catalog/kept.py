"""Values that a process keeps for a moment, so that many who ask cost one reading. For what may be shown late.

Unlike `shop.catalog.local_copy` it hears of no other process's changes and needs no Redis: it is for the time
without one.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 100  # values; who asks for names at random does not fill the memory


class Kept(Generic[T]):
    """Values by name, in the memory of one process, for its threads. Two that find none may both read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, tuple[T, float]] = {}  # with the end of its life by the monotonic clock
        self._last_change = object()

    def get(self, name: str, read: Callable[[], tuple[T, float]]) -> T:
        """The value of `name`.

        Args:
            name: of the value.
            read: called where none is kept; returns the value and for how many seconds it may be. What it raises
                goes to the caller, and nothing is kept.
        """
        asked_at, change = time.monotonic(), self._last_change
        kept = self._values.get(name)
        if kept is not None and asked_at < kept[1]:
            return kept[0]
        value, seconds = read()
        with self._lock:
            if self._last_change is change:  # what was read before a change is kept for nobody
                if len(self._values) >= MOST:
                    self._values.clear()
                self._values[name] = value, asked_at + seconds
        return value

    def forget(self) -> None:
        """Something has changed, by this process: read all of it again."""
        with self._lock:
            self._last_change = object()
            self._values.clear()
