"""Messages to waiters of this process at one server. Pure: no socket, no thread."""

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable
from typing import Any

from django.utils.encoding import force_str

from idempotency.names import prefix

READY_SECONDS = 1.0  # for the server to confirm the subscription; without it a waiter looks by itself
READ_SECONDS = 5.0  # how often the subscriber looks whether anyone still waits
IDLE_READS = 6  # of these with nobody waiting, and the connection is given back
BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


def back_off_seconds(failures: int) -> float:
    """Return how long to wait after a failure that `failures` others preceded in a row."""
    return BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)]


Listener = Callable[[str | None], None]  # called with a message; with None when some may have been missed


class Bell:
    """Bell that wakes one thread, once for any number of rings."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken until it rings
        self._lock.acquire()

    def ring(self) -> None:
        try:  # noqa: SIM105  `suppress` takes longer, and a lock that changes hands waits for this
            self._lock.release()
        except RuntimeError:
            pass  # it rang already

    def wait(self, seconds: float) -> bool:
        """Wait until it rings (True) or `seconds` are over (False)."""
        return self._lock.acquire(timeout=max(seconds, 0.0))


class TaskBell:
    """`Bell` for a task; any thread may ring it."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        if asyncio._get_running_loop() is self._loop:
            self._event.set()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Mail:
    """Messages to the waiters of a process, by request. Thread-safe.

    A waiter is expected from before each time that it asks the server, so that no reply overtakes it, and an
    earlier message rings no bell. A message is a hint to look, or a grant. When messages may have been lost,
    every waiter is made to look, even before it hangs its bell. A bell hangs until it rings.

    Attributes:
        holds: of the process; their `ended` is called with what a script says of one that another process ended,
            and their `doubt` when that may have been missed.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run in any line, and end an acquire
        self._received: dict[str, Any] = {}
        self._bells: dict[str, Any] = {}
        self.holds: Any = None

    def expect(self, request: str) -> None:
        """Forget what was delivered to `request`, and accept messages from now on."""
        self._received[request] = None

    def forget(self, request: str) -> None:
        """Accept no more messages to `request`."""
        with self._lock:  # a message that is being delivered must not leave it here for ever
            self._received.pop(request, None)
            self._bells.pop(request, None)

    def received(self, request: str) -> Any:
        """Return the last message: None; True, to look; or a grant: token, and end if unconfirmed."""
        return self._received.get(request)

    def hang(self, request: str, bell: Any) -> None:
        """Have `bell` ring for `request`, at once if a message is there already."""
        with self._lock:
            if self._received.get(request) is None:
                self._bells[request] = bell
            else:
                bell.ring()

    def deliver(self, data: bytes | str) -> None:
        """Take a message: `request`, `request token end`, or `- token key owner` for `Holds.ended`."""
        request, *grant = force_str(data, errors="replace").split(" ")
        if request == "-":
            self.holds.ended(int(grant[0]), " ".join(grant[1:]))
            return
        message = (int(grant[0]), int(grant[1])) if grant else True
        with self._lock:
            if request in self._received:
                self._received[request] = message
                if bell := self._bells.pop(request, None):
                    bell.ring()

    def ring_all(self) -> None:
        """Have every waiter look: messages may have been lost."""
        with self._lock:
            for request in [request for request, message in self._received.items() if message is None]:
                self._received[request] = True
            while self._bells:
                self._bells.popitem()[1].ring()
        if self.holds is not None:
            self.holds.doubt()

    @property
    def waiting(self) -> bool:
        """True while any request expects a message, or any hold may be ended by force."""
        return bool(self._received) or (self.holds is not None and self.holds.any_lasts())


class Mailbox:
    """Mailbox of one subscription. `confirmed` once messages come on its `channel`."""

    def __init__(self) -> None:
        self.mail = Mail()
        self.confirmed = False
        self.channel = f"{prefix()}:locks:{uuid.uuid4().hex}"
        self._own_channel = self.channel.encode()
        self._listeners: dict[str, list[Listener]] = {}

    @property
    def needed(self) -> bool:
        return self.mail.waiting or bool(self._listeners)

    @property
    def channels(self) -> list[str]:
        return [self.channel, *self._listeners]

    def add(self, channel: str, listener: Listener) -> bool:
        """Have `listener` called for `channel`; return whether that is to be subscribed to.

        If not, it is called at once, with None: it may have missed some.
        """
        first = channel not in self._listeners
        self._listeners.setdefault(channel, []).append(listener)
        if not first:
            listener(None)
        return first

    def remove(self, channel: str, listener: Listener) -> bool:
        """End the calls, if they began; return whether that ends the subscription."""
        listeners = self._listeners.get(channel)
        if listeners is None:
            return False
        if listener in listeners:  # an interrupt may have come before
            listeners.remove(listener)
        if not listeners:
            del self._listeners[channel]
        return not listeners

    def take(self, message: dict[str, Any] | None) -> bool:
        """Pass a message on, as redis-py gives it; return whether it confirms a subscription.

        A channel that is confirmed again may have missed some.
        """
        if message is None or message["type"] not in {"message", "subscribe"}:
            return False
        data, channel = message["data"], message["channel"]
        if channel == self._own_channel and message["type"] == "message":  # a lock that changes hands, at once
            self.mail.deliver(data)
            return False
        channel = force_str(channel)
        subscribed: bool = message["type"] == "subscribe"
        if channel == self.channel:
            self.mail.ring_all() if subscribed else self.mail.deliver(data)
        else:
            for listener in list(self._listeners.get(channel, ())):
                listener(None if subscribed else force_str(data, errors="replace"))
        return subscribed
