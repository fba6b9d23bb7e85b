"""Waiting for a message of Redis: one subscriber connection and one thread a process, however many wait.

A message may be lost (a broken connection, a server that restarts): then every bell rings, and who waits looks
again for himself. So a wake-up is a hint to look, never an answer.
"""

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from idempotency.observability.background import Worker
from idempotency.redis import fastpath
from idempotency.redis.connection import hang_up

READY_SECONDS = 1.0  # for the server to confirm a subscription
READ_SECONDS = 5.0  # how often the idle reader looks whether it is still needed


class Bell:
    """Rings when something was told on its channel, or might have been."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, seconds: float) -> bool:
        """Until it rings or `seconds` are over; True if it rang. May be waited for again."""
        rung = self._rung.wait(seconds)
        self._rung.clear()
        return rung


class Subscriber:
    """The bells of this process by channel, and the thread that rings them while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[str, list[Bell]] = defaultdict(list)
        self._pubsub: Any = None
        self._process = os.getpid()

    @contextlib.contextmanager
    def listen(self, channel: str) -> Iterator[Bell | None]:
        """A bell on `channel`, whose subscription the server has confirmed; None if Redis is unavailable."""
        bell = Bell()
        try:
            heard = fastpath.attempt(lambda redis: self._add(channel, bell, redis))
            yield bell if heard and bell.ready.wait(READY_SECONDS) else None
        finally:
            self._remove(channel, bell)

    def _add(self, channel: str, bell: Bell, redis: Any) -> bool:
        with self._lock:
            if self._process != os.getpid():  # a fork took the bells along, but not the thread
                self._process, self._pubsub = os.getpid(), None
                self._bells.clear()
            first = channel not in self._bells
            self._bells[channel].append(bell)
            if self._pubsub is None:
                self._pubsub = self._read_by_a_worker(_subscribed(redis, channel))
            elif first:
                self._pubsub.subscribe(channel)
            elif self._bells[channel][0].ready.is_set():
                bell.ready.set()
        return True

    def _read_by_a_worker(self, pubsub: Any) -> Any:
        reader = Worker(
            "idempotency-wakeups",
            lambda worker: self._read(worker, pubsub),
            wake=lambda: hang_up(pubsub.connection),
        )
        try:
            reader.start()
        except RuntimeError:  # no thread to be had: who waits looks again by the clock
            pubsub.close()
            return None
        return pubsub

    def _remove(self, channel: str, bell: Bell) -> None:
        with self._lock:
            bells = self._bells.get(channel, [])
            if bell not in bells:
                return
            bells.remove(bell)
            if bells:
                return
            del self._bells[channel]
            if self._pubsub is not None:
                with contextlib.suppress(*fastpath.FAILURES):
                    self._pubsub.unsubscribe(channel)

    def _read(self, worker: Worker, pubsub: Any) -> None:
        try:
            while not worker.stopping.is_set() and self._still_needed(pubsub):
                message = pubsub.get_message(timeout=READ_SECONDS)
                if message is not None:
                    self._tell(message)
        except (*fastpath.FAILURES, ValueError) as error:
            worker.met("The subscriber lost its connection (%s); all who wait look again.", type(error).__name__)
        finally:
            self._end(pubsub)

    def _tell(self, message: dict[str, Any]) -> None:
        name = message["channel"]
        channel = name.decode() if isinstance(name, bytes) else name
        with self._lock:
            for bell in self._bells.get(channel, []):
                if message["type"] == "subscribe":
                    bell.ready.set()
                elif message["type"] == "message":
                    bell.ring()

    def _still_needed(self, pubsub: Any) -> bool:
        """Forgets the connection in the same step in which nobody needs it, so that no newcomer is lost."""
        with self._lock:
            if self._pubsub is pubsub and not self._bells:
                self._pubsub = None
            return self._pubsub is pubsub

    def _end(self, pubsub: Any) -> None:
        with self._lock:
            if self._pubsub is pubsub:
                self._pubsub = None
                for bells in self._bells.values():
                    for bell in bells:
                        bell.ring()
                self._bells.clear()
        with contextlib.suppress(*fastpath.FAILURES):
            pubsub.close()


def _subscribed(redis: Any, channel: str) -> Any:
    """A connection that has asked for `channel`; where it could not, nobody keeps one that no thread reads."""
    pubsub = redis.pubsub()
    try:
        pubsub.subscribe(channel)
    except BaseException:
        pubsub.close()
        raise
    return pubsub


subscriber = Subscriber()
