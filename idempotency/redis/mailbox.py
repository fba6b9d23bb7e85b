"""Messages to what waits in this process. Pure bookkeeping: no socket, no thread of its own."""

import threading
from typing import Any

READY_SECONDS = 1.0  # for the server to confirm the subscription; without it a waiter looks by itself
READ_SECONDS = 5.0  # how often the subscriber looks whether anyone still waits
IDLE_READS = 6  # of these with nobody waiting, and the connection is given back
BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


class Mail:
    """Messages to the waiters of a process, by request. Thread-safe.

    A waiter is expected anew from before each time that it asks the server, so that no answer is faster than it,
    and what it was told before rings no bell. A message is a hint to look, or a grant; when messages may have been
    lost, everyone is told to look, also who has not hung its bell yet. A bell hangs until it rings.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run in any line, and end an acquire
        self._told: dict[str, Any] = {}
        self._bells: dict[str, Any] = {}

    def expect(self, request: str) -> None:
        """From now on, whatever was told to it before."""
        self._told[request] = None

    def forget(self, request: str) -> None:
        with self._lock:  # a message that is being delivered must not leave it here for ever
            self._told.pop(request, None)
            self._bells.pop(request, None)

    def told(self, request: str) -> Any:
        """What was told to `request` last: None; True, to look; or a grant: its token, its end if unconfirmed."""
        return self._told.get(request)

    def hang(self, request: str, bell: Any) -> None:
        """Have `bell` ring for `request`, at once if something was told already."""
        with self._lock:
            if self._told.get(request) is None:
                self._bells[request] = bell
            else:
                bell.ring()

    def deliver(self, data: bytes | str) -> None:
        """A message of the channel: `request`, or `request token end`."""
        request, *grant = (data.decode() if isinstance(data, bytes) else data).split(" ")
        told = (int(grant[0]), int(grant[1])) if grant else True
        with self._lock:
            if request in self._told:
                self._told[request] = told
                if bell := self._bells.pop(request, None):
                    bell.ring()

    def ring_all(self) -> None:
        """Something may have been lost: everyone looks for himself."""
        with self._lock:
            for request in [request for request, told in self._told.items() if told is None]:
                self._told[request] = True
            while self._bells:
                self._bells.popitem()[1].ring()

    @property
    def waiting(self) -> bool:
        return bool(self._told)

    def hangs(self, *, beside: Any = None) -> bool:
        """Whether a bell is still to be rung, other than `beside`."""
        if not self._bells:
            return False
        with self._lock:
            return any(bell is not beside for bell in list(self._bells.values()))
