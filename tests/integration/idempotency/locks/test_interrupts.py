"""A signal handler's exception ends every wait at once and leaves nothing held or queued."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from idempotency import locks
from idempotency.locks import LockUnavailable
from idempotency.locks.engine.threads import hub_of
from idempotency.redis.mailbox import Bell
from tests.conftest import hanging
from tests.integration.idempotency.locks.actors import Actor, until
from tests.integration.idempotency.locks.conftest import TIMEOUTS, Bench


class JobTimeout(Exception):
    """As RQ's JobTimeoutException or Celery's SoftTimeLimitExceeded."""


class Stop(BaseException):
    """As Ctrl-C."""


@contextmanager
def raising(error: BaseException, *, when: Callable[[], Any]) -> Iterator[None]:
    """Send SIGUSR1 once `when` is true; its handler raises `error` in the main thread."""

    def handler(*_: Any) -> None:
        raise error

    def story() -> None:
        until(when)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before, other = signal.signal(signal.SIGUSR1, handler), Actor()
    telling = other.begin(story)
    try:
        yield
    finally:
        telling.result(30)
        other.end()
        signal.signal(signal.SIGUSR1, before)


def waits() -> bool:
    """Whether the main thread waits for its bell."""
    return sys._current_frames()[threading.main_thread().ident or 0].f_code is Bell.wait.__code__


def taken(desk: Bench, kind: str) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """Return how to take something of this kind, to wait for it, and to give it back."""
    if kind == "CountDownLatch":
        latch = desk.make("CountDownLatch")
        return lambda: latch.open(1), latch.wait, latch.count_down
    if kind.startswith("ReadWriteLock"):
        lock = desk.make("ReadWriteLock")
        wanted = lock.read if kind.endswith("read") else lock.write
        return lock.write.acquire, wanted.acquire, lock.write.release
    if kind == "MultiLock":
        lock = desk.make("Lock")
        return lock.acquire, desk.locks.MultiLock([desk.make("Lock")]).acquire, lock.release
    lock = desk.make(kind, **({"permits": 1} if kind == "Semaphore" else {}))
    return lock.acquire, lock.acquire, lock.release


def left(desk: Bench) -> set[bytes]:
    """Queues, and who stands in them."""
    return {key for key in desk.plain.keys("*") if key.endswith((b":queue", b":waiters"))}


def test_it_ends_a_wait_beside_others_too(desk: Bench) -> None:
    lock = desk.make("Lock")
    holder, other = desk.actors(2)
    holder.do(lock.acquire)
    waiting = other.begin(lock.acquire)
    desk.waits(1)
    with pytest.raises(JobTimeout), raising(JobTimeout(), when=lambda: desk.queue() == 2):
        lock.acquire(wait_seconds=20)
    desk.waits(1)
    holder.do(lock.release)
    assert waiting.result(30) is True
    other.do(lock.release)


KINDS = (
    "Lock",
    "FairLock",
    "ReadWriteLock.read",
    "ReadWriteLock.write",
    "Semaphore",
    "MultiLock",
    "CountDownLatch",
)
ERRORS = (JobTimeout(), TimeoutError("of a job"), redis.ConnectionError("of a job"), Stop())


@pytest.mark.parametrize(
    ("kind", "error"),
    [*((kind, ERRORS[0]) for kind in KINDS), *(("Lock", error) for error in ERRORS[1:])],
    ids=str,
)
def test_it_ends_the_wait(desk: Bench, kind: str, error: BaseException) -> None:
    take, wait, give_back = taken(desk, kind)
    holder = desk.actor()
    holder.do(take)
    with pytest.raises(type(error)) as raised, raising(error, when=waits):
        wait(wait_seconds=20)
    assert raised.value is error
    assert left(desk) == set()
    holder.do(give_back)


def test_it_is_not_taken_for_a_server_that_hangs_which_is_named(desk: Bench) -> None:
    error = TimeoutError("of a job")
    with redis.Redis.from_url(desk.servers.url, **TIMEOUTS | {"socket_timeout": 2}) as client:
        lock = locks.Lock("thing", client=client)
        assert lock.acquire(wait_seconds=0)
        lock.release()
        asks = lambda: not hub_of(client)._connections._idle  # noqa: E731
        with hanging(desk.plain):
            with pytest.raises(type(error)) as raised, raising(error, when=asks):
                lock.acquire(wait_seconds=20)
            before = signal.signal(signal.SIGUSR1, lambda *_: None)  # a handler that has nothing to do with it
            with pytest.raises(LockUnavailable):
                lock.acquire(wait_seconds=0)
            signal.signal(signal.SIGUSR1, before)
        assert raised.value is error


def test_one_that_is_handled_already_does_not_hide_a_server_that_is_gone(desk: Bench) -> None:
    """What gives the lock back on the way out goes on being tried."""

    def handler(*_: Any) -> None:
        raise JobTimeout

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with redis.Redis(host="127.0.0.1", port=1) as gone:
            try:
                signal.raise_signal(signal.SIGUSR1)
            except JobTimeout:
                with pytest.raises(LockUnavailable):
                    locks.Lock("thing", client=gone).acquire(wait_seconds=0)
    finally:
        signal.signal(signal.SIGUSR1, before)
