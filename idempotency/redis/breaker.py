"""Circuit breaker: after a failure, skip a server for a while instead of waiting for it each time."""

import threading
import time


class Breaker:
    """Breaker: closed until `failed()`, open for `open_seconds`, then one call passes as a probe.

    Per process and thread-safe; the clock is monotonic.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_until = 0.0

    def allows(self, *, open_seconds: float) -> bool:
        """Return whether to try. After the pause one caller may; the others wait another pause."""
        if self._open_until == 0.0:
            return True
        with self._lock:
            now = time.monotonic()
            if self._open_until == 0.0:
                return True
            if now < self._open_until:
                return False
            self._open_until = now + open_seconds
            return True

    @property
    def is_closed(self) -> bool:
        """True while no failure is known; False for the probe too, which must wait for its reply."""
        return self._open_until == 0.0

    def failed(self, *, open_seconds: float) -> None:
        """Open."""
        with self._lock:
            self._open_until = time.monotonic() + open_seconds

    def succeeded(self) -> None:
        """Close."""
        if self._open_until != 0.0:
            with self._lock:
                self._open_until = 0.0
