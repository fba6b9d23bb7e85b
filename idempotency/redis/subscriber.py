"""The subscriber of a process: who reads the messages for its waiting threads and its topics.

A daemon thread keeps the connection: it connects, subscribes, notices a loss and has everyone look again. The
messages are read by one thread at a time, the leader. A thread that waits alone leads until its own bell rings, so
that a lock changes hands without another thread in between. Where several wait, or a topic is listened to, the
subscriber's own thread leads; where nobody wants a message it stays in the socket for who comes next.

No waiter stays unheard: he hangs up his bell before he asks for the lead, and who gives the lead back looks for
bells afterwards, and calls the subscriber's thread. So one of the two sees the other.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from idempotency.locks.engine.hub import Hub
from idempotency.observability.background import Worker
from idempotency.redis.connection import hang_up
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.interrupts import interruption
from idempotency.redis.mailbox import BACK_OFF_SECONDS, IDLE_READS, READ_SECONDS
from idempotency.redis.subscription import Subscription

log = logging.getLogger(__name__)


class Subscriber:
    """See the module.

    Args:
        hub: whose messages they are.
        connect: makes a subscriber's connection: a `Subscription`, or redis-py's own where only it knows the way.
            The latter is read by the thread alone.
    """

    def __init__(self, hub: Hub, connect: Callable[[], Any]) -> None:
        self._hub = hub
        self._connect = connect
        self._guard = threading.Lock()
        self._thread: Worker | None = None
        self._ready = threading.Event()
        self._called = threading.Event()  # the thread has something to do, or should look whether
        self._telling = threading.RLock()  # a finalizer may run in any line, and leave a topic
        self._pubsub: Any = None
        self._subscription: Subscription | None = None  # from when it is confirmed: who waits may lead
        self._was_led = False  # since the thread looked last

    def listen(self, seconds: float) -> bool:
        """See that it is heard from now on; False if the server does not confirm that within `seconds`."""
        if self._ready.is_set():
            return True
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                thread = Worker("locks-subscriber", self._run, wake=self._wake)
                try:
                    thread.start()
                except RuntimeError as error:  # there are too many; who waits looks for himself
                    log.warning("No subscriber for messages about locks: %s", error)
                    return False
                self._thread = thread
        return self._ready.wait(max(seconds, 0.0))

    def join(self, channel: str, listener: Callable[[str | None], None]) -> None:
        """Have `listener` called with each message of `channel`, and with None when some may be missed."""
        with self._telling:
            if self._hub.added(channel, listener):
                self._tell("subscribe", channel)
            else:
                listener(None)

    def leave(self, channel: str, listener: Callable[[str | None], None]) -> None:
        """No more calls."""
        with self._telling:
            if self._hub.removed(channel, listener):
                self._tell("unsubscribe", channel)

    def _tell(self, what: str, channel: str) -> None:
        with contextlib.suppress(*FAILURES):  # its reader finds that out, and begins anew
            if (pubsub := self._pubsub) is not None:  # if not, it will know when it begins
                getattr(pubsub, what)(channel)
        self._called.set()

    def wait(self, bell: Any, seconds: float) -> bool:
        """Until the bell rings (True) or the time is over (False); the bell hangs in the hub's mail already."""
        deadline = time.monotonic() + seconds
        subscription = self._subscription
        if subscription is not None and not self._hub.listened and self._lead(subscription, bell, deadline):
            return True
        rang: bool = bell.wait(deadline - time.monotonic())
        return rang

    def _lead(self, subscription: Subscription, bell: Any, deadline: float) -> bool:
        """Read messages until the bell has rung. False if another one leads, the time is over, or it is broken."""
        rang = False
        try:
            if subscription.lead(bell):
                self._was_led = True
                while not (rang := bell.rang()) and (left := deadline - time.monotonic()) > 0:
                    self._hub.take(subscription.get_message(timeout=left))
        except BaseException as error:  # an interrupt too: it may have come between the socket and the bell
            if subscription.leader is bell:
                subscription.broken = True
            if not isinstance(error, RedisError):
                raise
            if interrupt := interruption(error):
                raise interrupt from None
        finally:
            if subscription.leader is bell:
                subscription.leader = None
                if self._hub.listened or self._hub.mail.hangs(beside=bell):
                    self._called.set()
            if subscription.broken:
                self._called.set()
        return rang

    def _wake(self) -> None:
        self._called.set()
        if (pubsub := self._pubsub) is not None:
            hang_up(pubsub.connection)

    def _run(self, worker: Worker) -> None:
        failures = 0
        while self._still_needed(worker):
            try:
                self._keep_a_connection(worker)
                failures = 0
            except Exception as error:  # whatever it was, those who wait must be heard again
                lost = "The subscriber lost its connection (%s); all who wait look again."
                worker.met(lost, type(error).__name__)
                self._hub.mail.ring_all()
                worker.stopping.wait(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)])
                failures += 1

    def _keep_a_connection(self, worker: Worker) -> None:
        pubsub = self._connect()
        try:
            with self._telling:  # redis-py's own connects in here: two that subscribe at once would do so twice
                self._pubsub = pubsub
                pubsub.subscribe(*self._hub.channels)
            idle = 0
            while not worker.stopping.is_set() and (idle < IDLE_READS or not self._may_end()):
                if self._subscription is None:
                    self._read(pubsub)
                else:
                    self._stand_by(self._subscription)
                idle = 0 if self._hub.needed or self._was_led else idle + 1
                self._was_led = False
        finally:
            self._pubsub = self._subscription = None
            self._ready.clear()
            with contextlib.suppress(*FAILURES):
                pubsub.close()

    def _stand_by(self, subscription: Subscription) -> None:
        """Read a message that no waiter reads for himself, or wait until there may be such."""
        if subscription.broken:
            raise RedisConnectionError("It was lost while a waiter read it.")
        if not ((self._hub.listened or self._hub.mail.hangs()) and subscription.lead(self)):
            self._called.wait(READ_SECONDS)
            self._called.clear()
            return
        try:
            self._read(subscription)
        except BaseException:
            subscription.broken = True
            raise
        finally:
            subscription.leader = None

    def _read(self, pubsub: Any) -> None:
        message = pubsub.get_message(timeout=READ_SECONDS)
        self._hub.take(message)
        if message is not None and message["type"] == "subscribe":
            if isinstance(pubsub, Subscription):
                self._subscription = pubsub
            self._ready.set()

    def _may_end(self) -> bool:
        """Whether nobody reads the subscription, nor can from now on."""
        return self._subscription is None or self._subscription.lead(self)

    def _still_needed(self, worker: Worker) -> bool:
        """Says that nobody listens in the same step in which nobody waits, so that no newcomer is lost."""
        with self._guard:
            if self._hub.needed and not worker.stopping.is_set():
                return True
            self._thread = None
            return False
