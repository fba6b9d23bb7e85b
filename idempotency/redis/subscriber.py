"""Subscriber of a process: reads messages for waiting threads, for markers and for topics.

A daemon thread keeps the connection: it connects, subscribes, notices a loss and has every waiter look again.
"""

import contextlib
import logging
import os
import select
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from idempotency.observability.background import Worker
from idempotency.redis import fastpath
from idempotency.redis.clients import refuse_other_client
from idempotency.redis.connection import connection_beside, hang_up, plain_pool
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.mailbox import (
    IDLE_READS,
    READ_SECONDS,
    READY_SECONDS,
    Bell,
    Listener,
    Mailbox,
    back_off_seconds,
)

log = logging.getLogger(__name__)

REST_SECONDS = 2.0  # for the rest of a message that has begun to arrive


class Subscriber:
    """Subscriber for one client, and for every other client of the same pool.

    Attributes:
        mailbox: takes the messages.
        changing: held while what it is subscribed to, or its connection, changes.
        hub: of locks, once there is one.
    """

    def __init__(self, client: Any) -> None:
        self.mailbox = Mailbox()
        self._client = client
        self._pool = plain_pool(client)
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._thread: Worker | None = None
        self._ready = threading.Event()
        self.changing = threading.RLock()  # a finalizer may run in any line, and leave a topic
        self.hub: Any = None
        self._pubsub: Any = None

    def listen(self, seconds: float) -> bool:
        """Start hearing; return False if the server does not confirm that within `seconds`."""
        if self._ready.is_set():
            return True
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                thread = Worker("locks-subscriber", self._run, wake=self._wake)
                try:
                    thread.start()
                except RuntimeError as error:  # there are too many; waiters look by themselves
                    log.warning("No subscriber for messages of Redis: %s", error)
                    return False
                self._thread = thread
        return self._ready.wait(max(seconds, 0.0))

    @contextlib.contextmanager
    def joined(self, channel: str, listener: Listener) -> Iterator[None]:
        """Have `listener` called while the block runs."""
        try:
            with self.changing:  # in here: an interrupt may come when it has joined
                if self.mailbox.add(channel, listener):
                    self._change("subscribe", channel)
            yield
        finally:
            # a forked child that drops what it inherited must not end its parent's listening: the socket is one
            if self._process == os.getpid():
                with self.changing:
                    if self.mailbox.remove(channel, listener):
                        self._change("unsubscribe", channel)

    def _change(self, command: str, channel: str) -> None:
        with contextlib.suppress(*FAILURES):  # its reader finds that out, and begins again
            if (pubsub := self._pubsub) is not None:  # if not, the thread subscribes when it begins
                getattr(pubsub, command)(channel)

    def _wake(self) -> None:
        if (pubsub := self._pubsub) is not None:
            hang_up(pubsub.connection)

    def _run(self, worker: Worker) -> None:
        failures = 0
        while self._still_needed(worker):
            try:
                self._keep_a_connection(worker)
                failures = 0
            except Exception as error:  # of any kind: waiters must be heard again
                lost = "The subscriber lost its connection (%s); every waiter looks again."
                worker.met(lost, type(error).__name__)
                if not worker.stopping.is_set():  # it starts a watchdog that nobody would stop
                    self.mailbox.mail.ring_all()
                worker.stopping.wait(back_off_seconds(failures))
                failures += 1

    def _keep_a_connection(self, worker: Worker) -> None:
        pubsub = self._client.pubsub() if self._pool is None else Subscription(self._pool)
        try:
            with self.changing:  # it connects in here: two that subscribe at once would connect it twice
                self._pubsub = pubsub
                pubsub.subscribe(*self.mailbox.channels)
            idle = 0
            while idle < IDLE_READS and not worker.stopping.is_set():
                if self.mailbox.take(pubsub.get_message(timeout=READ_SECONDS)):
                    self._ready.set()
                    self.mailbox.confirmed = True
                idle = 0 if self.mailbox.needed else idle + 1
        finally:
            with self.changing, contextlib.suppress(*FAILURES):
                self._pubsub = None
                self.mailbox.confirmed = False
                self._ready.clear()
                pubsub.close()

    def _still_needed(self, worker: Worker) -> bool:
        """Let the thread go in the same step in which nobody waits, so that no newcomer is lost."""
        with self._guard:
            if self.mailbox.needed and not worker.stopping.is_set():
                return True
            self._thread = None
            return False


class Subscription:
    """Connection beside those of `pool`, read by one thread. Useless after an error.

    redis-py's own reconnects without saying so, and a waiter must learn that messages may be lost. A message also
    passes through fewer layers here, and until it has passed nobody holds the lock.
    """

    def __init__(self, pool: Any) -> None:
        self.connection = connection_beside(pool)
        self._is_broken = False  # a command may be half sent
        self.connection.connect()
        self.connection._sock.settimeout(REST_SECONDS)
        # the parser is read past the connection, which would connect again where it has been closed
        self._reader = self.connection._parser
        self._pushes: dict[str, bool] = {}
        if str(self.connection.protocol) == "3":
            self._pushes["push_request"] = True
            self._reader.set_pubsub_push_handler(_as_it_is)  # redis-py's own prints each message for a log
        # a descriptor of our own: redis-py may close its one at any time, and another socket get the number
        self._number = os.dup(self.connection._sock.fileno())
        self._readable = select.poll()
        self._readable.register(self._number, select.POLLIN)

    def subscribe(self, *channels: str) -> None:
        """Ask for the messages of channels, each after one of type ``subscribe``."""
        self._send("SUBSCRIBE", *channels)

    def unsubscribe(self, *channels: str) -> None:
        self._send("UNSUBSCRIBE", *channels)

    def _send(self, *command: str) -> None:
        self._refuse_if_broken()
        try:
            self.connection.send_command(*command, check_health=False)
        except BaseException:
            self._is_broken = True
            raise

    def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        """Return the next message: type, channel and data. None if none came in `timeout` s."""
        self._refuse_if_broken()
        try:
            # what came together with the last one has left the socket
            if not self._reader.can_read(timeout=0) and not self._readable.poll(timeout * 1000):
                return None
            reply = self._reader.read_response(disable_decoding=True, **self._pushes)
        except (AttributeError, ValueError) as error:  # of redis-py without hiredis, where a sender has closed it
            raise RedisConnectionError("This subscription has ended.") from error
        if reply is None:  # pushed by the server of its own accord, and no message
            return None
        if isinstance(reply, Exception):
            raise reply
        kind, channel, data = reply
        return {"type": kind.decode(), "channel": channel, "data": data}

    def close(self) -> None:
        self.connection.disconnect()
        os.close(self._number)

    def _refuse_if_broken(self) -> None:
        if self._is_broken:  # redis-py would connect it again, to hear nothing
            raise RedisConnectionError("This subscription has ended.")


def _as_it_is(message: Any) -> Any:
    return message


_ATTRIBUTE = "_payonce_subscriber"
_owners: "weakref.WeakSet[Any]" = weakref.WeakSet()  # clients and pools that have one


def subscriber_of(client: Any) -> Subscriber:
    """Return the one subscriber of this process for `client`.

    django-redis makes a client for each thread, and they share a pool. That has the subscriber as an attribute: a
    client that nobody uses any more takes it along.

    Raises:
        ValueError: it is no client for threads.
    """
    pool = plain_pool(client)
    owner = client if pool is None else pool
    found = getattr(owner, "__dict__", {}).get(_ATTRIBUTE)
    if found is None:
        refuse_other_client(client, awaited=False)
        _owners.add(owner)
        found = vars(owner).setdefault(_ATTRIBUTE, Subscriber(client))  # or that of a faster thread
    return found  # type: ignore[no-any-return]


def _forget() -> None:
    for owner in list(_owners):
        vars(owner).pop(_ATTRIBUTE, None)


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def listen(channel: str) -> Iterator[Bell | None]:
    """Yield a bell for `channel`. None if the server is away or does not confirm."""
    if not fastpath.takes_writes():  # at once where it is gone, and the breaker learns of it
        yield None
        return
    bell, confirmed, subscriber = Bell(), threading.Event(), subscriber_of(fastpath.client())

    def hear(message: str | None) -> None:
        if message is None and not confirmed.is_set():
            confirmed.set()
        else:  # a message, or some may have been missed
            bell.ring()

    with subscriber.joined(channel, hear):
        is_heard = subscriber.listen(READY_SECONDS) and confirmed.wait(READY_SECONDS)
        yield bell if is_heard else None
