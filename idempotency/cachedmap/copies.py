"""Copies of a map's values in one process. A message, their age or their disuse ends them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from idempotency.arguments import text

MISSING: Any = object()


@dataclass(slots=True)
class Copy:
    """Value in this process. Times are of the monotonic clock."""

    value: Any
    ends_at: float
    idle_seconds: float
    used_at: float

    @property
    def remaining_seconds(self) -> float:
        return min(self.ends_at, self.used_at + self.idle_seconds) - time.monotonic()


@dataclass(slots=True)
class Flight:
    """Reads of a key, one after the other, for its callers; `in_vain`: how many found nothing."""

    lock: Any = field(default_factory=threading.RLock)  # a read may get its own key
    callers: int = 0
    in_vain: int = 0


class Copies:
    """Copies of a map's values in one process, for one tenant. Thread-safe."""

    def __init__(self, most: int) -> None:
        self.lock = threading.RLock()  # held by callers too, around several of these methods
        self.flights: dict[str, Flight] = {}
        self.changes = 0
        self.messages: Any = None
        self.listening = ExitStack()
        self._most = most
        self._copies: OrderedDict[str, Copy] = OrderedDict()

    def get(self, key: str) -> Any:
        with self.lock:
            self._hear()
            copy = self._copies.get(text("key", key))
            if copy is None or copy.remaining_seconds <= 0:
                self._copies.pop(key, None)
                return MISSING
            copy.used_at = time.monotonic()
            self._copies.move_to_end(key)
            return copy.value

    def put(self, key: str, value: Any, *, seconds: float, idle_seconds: float, changes: int) -> None:
        """Store a value, unless there was a change since `changes`: it may be older than that."""
        with self.lock:
            self._hear()
            if changes == self.changes and seconds > 0:
                now = time.monotonic()
                self._copies[key] = Copy(value, now + seconds, idle_seconds, now)
                self._copies.move_to_end(key)
                if len(self._copies) > self._most:
                    self._copies.popitem(last=False)

    def items(self) -> dict[str, Copy]:
        """Return those that last."""
        with self.lock:
            self._hear()
            return {key: copy for key, copy in self._copies.items() if copy.remaining_seconds > 0}

    def drop(self, *keys: str) -> None:
        """Forget some values, or all; also one that is being read."""
        with self.lock:
            self.changes += 1
            if not keys:
                self._copies.clear()
            for key in keys:
                self._copies.pop(key, None)

    def _hear(self) -> None:
        with suppress(TimeoutError):
            while self.messages is not None:
                message = self.messages.take(wait_seconds=0)
                if message and message[0] in "+=-":
                    self.drop(message[1:])
                elif not message or message[0] not in "~!":  # what ended by itself, as its copies do
                    self.drop()  # None: some may be missed

    def single_flight(self, key: str, read: Callable[["Copies", str], Any]) -> Any:
        """Return a copy, or what `read` returns to one thread; those that wait share a `MISSING`."""
        with self.lock:
            flight = self.flights.setdefault(key, Flight())
            flight.callers += 1
            in_vain = flight.in_vain
        try:
            with flight.lock:
                value = self.get(key)
                if value is MISSING and flight.in_vain == in_vain:
                    changes = self.changes
                    value = read(self, key)
                    flight.in_vain += value is MISSING and changes == self.changes
                return value
        finally:
            with self.lock:
                flight.callers -= 1
                if not flight.callers:
                    del self.flights[key]
