"""Subscriber of a process: reads messages for waiting threads, for markers and for topics.

A daemon thread keeps the connection: it connects, subscribes, notices a loss and has every waiter look again.
One thread at a time reads, the leader. A thread that waits alone for a lock leads until its own bell rings, so
that a lock changes hands without another thread in between. Where several wait, or a channel has listeners, the
subscriber's thread leads. Where nobody does it reads what comes, such as the end of a hold by force, but gives way
to a waiter, and looks again only after a moment: a message that a waiter reads must seldom wake two threads.

No waiter stays unheard: it hangs its bell before it asks for the lead, and a leader that stops looks for bells
afterwards and calls the subscriber's thread. So one of the two sees the other.
"""

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from idempotency.observability.background import Worker
from idempotency.redis import fastpath
from idempotency.redis.availability import interruption
from idempotency.redis.clients import refuse_other_client
from idempotency.redis.connection import hang_up, plain_pool
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
from idempotency.redis.subscription import Call, Subscription

log = logging.getLogger(__name__)

WAY_SECONDS = 0.05  # for which the thread gives way to waiters that read, at least


class Subscriber:
    """Subscriber for one client, and for every other client of the same pool.

    Args:
        client: of redis-py. Where only it knows the way, its own `pubsub` is read, by the thread alone.

    Attributes:
        mailbox: takes the messages.
        changing: held while it changes what it is subscribed to, or who it is read for.
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
        self._called = Call()  # the thread has something to do, or to look for
        self._gives_way = False  # until the leader calls it
        self.changing = threading.RLock()  # a finalizer may run in any line, and leave a topic
        self.hub: Any = None
        self._pubsub: Any = None
        self._subscription: Subscription | None = None  # from when it is confirmed: waiters may lead
        self._was_led = False  # since the thread looked last

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
        self._called.set()

    def wait(self, bell: Bell, seconds: float) -> bool:
        """Wait for a bell that hangs in the mail: until it rings (True) or the time is over (False)."""
        deadline = time.monotonic() + seconds
        subscription = self._subscription
        if subscription is not None and not self.mailbox.listened and self._lead(subscription, bell, deadline):
            return True
        return bell.wait(deadline - time.monotonic())

    def _lead(self, subscription: Subscription, bell: Bell, deadline: float) -> bool:
        """Read messages until the bell has rung. False if another one leads, the time is over, or it is broken."""
        rang = False
        try:
            if subscription.lead(bell):
                self._was_led = True
                while not (rang := bell.rang()) and (left := deadline - time.monotonic()) > 0:
                    self.mailbox.take(subscription.get_message(timeout=left))
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
                if self._gives_way or self.mailbox.listened or self.mailbox.mail.hangs(beside=bell):
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
            with self.changing:  # redis-py's own connects in here: two that subscribe at once would do so twice
                self._pubsub = pubsub
                pubsub.subscribe(*self.mailbox.channels)
            idle = 0
            while not worker.stopping.is_set() and (idle < IDLE_READS or not self._may_end()):
                if self._subscription is None:
                    self._read(pubsub, READ_SECONDS)
                else:
                    self._stand_by(self._subscription)
                idle = 0 if self.mailbox.needed or self._was_led else idle + 1
                self._was_led = False
        finally:
            self._pubsub = self._subscription = None
            self.mailbox.confirmed = False
            self._ready.clear()
            with contextlib.suppress(*FAILURES):
                pubsub.close()

    def _stand_by(self, subscription: Subscription) -> None:
        """Read a message that no waiter reads itself, or wait until there may be one."""
        if subscription.broken:
            raise RedisConnectionError("It was lost while a waiter read it.")
        seconds = READ_SECONDS
        if not (self.mailbox.listened or self.mailbox.mail.hangs()):
            self._called.wait(READ_SECONDS, subscription.number)
            seconds = 0.0
        if not subscription.lead(self):
            return self._give_way(subscription)
        try:
            while self._read(subscription, seconds) and not seconds:
                continue  # what came together has left the socket
        except BaseException:
            subscription.broken = True
            raise
        finally:
            subscription.leader = None

    def _give_way(self, subscription: Subscription) -> None:
        if not self._called.wait(WAY_SECONDS):
            self._gives_way = True  # first: the leader may leave at any time
            if subscription.leader is not None:
                self._called.wait(READ_SECONDS)
            self._gives_way = False

    def _read(self, pubsub: Any, seconds: float) -> bool:
        """Take a message that comes within `seconds`; return whether there was one."""
        message = pubsub.get_message(timeout=seconds)
        if self.mailbox.take(message):
            if isinstance(pubsub, Subscription):
                self._subscription = pubsub
            self._ready.set()
            self.mailbox.confirmed = True
        return message is not None

    def _may_end(self) -> bool:
        """Return whether nobody reads the subscription, nor can from now on."""
        return self._subscription is None or self._subscription.lead(self)

    def _still_needed(self, worker: Worker) -> bool:
        """Let the thread go in the same step in which nobody waits, so that no newcomer is lost."""
        with self._guard:
            if self.mailbox.needed and not worker.stopping.is_set():
                return True
            self._thread = None
            return False


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
    """Yield a bell for `channel` of the settings' Redis. None if the server is away or does not confirm."""
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
