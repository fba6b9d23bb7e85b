"""Commands that run twice or come late, and replies that are lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from idempotency.locks import LockUnavailable, NotHeld, Rate, RateExceeded
from idempotency.locks.engine import places
from idempotency.locks.engine.holder import named
from idempotency.redis.connection import ClientConnection
from idempotency.redis.fastpath import Script
from tests.integration.idempotency.locks.conftest import Bench, commands_pass


@contextmanager
def replies_lost(*, executed: int, then_silent: bool = False) -> Iterator[None]:
    """Lose so many replies; the next commands are answered, or do not arrive."""
    left = [None] * executed

    def before(script: Script, arguments: Any) -> None:
        if then_silent and not left:
            raise redis.TimeoutError

    def after(reply: Any) -> Any:
        if left:
            left.pop()
            raise redis.TimeoutError
        return reply

    with commands_pass(before, after):
        yield


class TestEveryCommandRunsTwice:
    """As redis-py does by itself when an answer is late."""

    @pytest.fixture(autouse=True)
    def _twice(self) -> Iterator[None]:
        once = Script.run
        with commands_pass(lambda script, arguments: once(script, *arguments)):
            yield

    def test_a_lock_is_taken_and_given_back_once(self, desk: Bench) -> None:
        lock = desk.make("Lock")
        first, second, other = desk.actors(3)
        assert first.do(lock.acquire)
        assert first.do(lock.acquire)
        first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        waiting = second.begin(lock.acquire)
        desk.waits(1)
        first.do(lock.release)
        assert waiting.result(30) is True
        assert first.do(lambda: lock.acquire(wait_seconds=0)) is False
        second.do(lambda: lock.extend(60))
        waiting = first.begin(lock.acquire)
        desk.waits(1)
        assert other.do(lock.force_release) is True
        assert waiting.result(30) is True
        assert first.do(lock.hold_count) == 1
        first.do(lock.release)
        with pytest.raises(NotHeld):
            first.do(lock.release)

    def test_so_are_permits(self, desk: Bench) -> None:
        semaphore = desk.make("Semaphore", permits=2)
        assert [semaphore.acquire(wait_seconds=0) for _ in range(3)] == [True, True, False]
        semaphore.release()
        assert [semaphore.acquire(wait_seconds=0) for _ in range(2)] == [True, False]
        semaphore.release(2)
        assert [semaphore.add(3), semaphore.drain(), semaphore.drain()] == [5, 5, 0]
        assert semaphore.set_total(9, if_absent=True) is False
        assert semaphore.set_total(None) is True
        semaphore.release(2)
        owned = desk.make("Semaphore", "named", permits=3, owner="order 17")
        assert [owned.acquire(wait_seconds=0) for _ in range(3)] == [True] * 3
        owned.release(2)
        assert (semaphore.acquired(), owned.acquired()) == (3, 1)
        owned.release()
        several = desk.make("PermitExpirableSemaphore", permits=3)
        names = several.acquire_many(3, lease_seconds=60)
        several.release(*names[1:])
        assert several.available() == 2

    def test_so_is_everything_else(self, desk: Bench) -> None:
        latch = desk.make("CountDownLatch")
        assert latch.open(3) is True
        assert [latch.count_down() for _ in range(3)] == [2, 1, 0]
        assert latch.open(1) is True
        assert [latch.delete() for _ in range(2)] == [True, False]
        for kind in ("RateLimiter", "TokenBucket"):
            limiter = desk.make(kind, permits=4, interval_seconds=600)
            limiter.acquire(3)
            limiter.release()
            assert limiter.available() == 2
            limiter.acquire(2)
            with pytest.raises(RateExceeded):
                limiter.acquire()
            assert limiter.set_rate(Rate(3, 600), if_absent=True) is True
            assert [limiter.delete(), limiter.delete()] == [True, False]
        seen = desk.make("ExpiringSet", ttl_seconds=60)
        assert [seen.add("a") for _ in range(2)] == [True, False]


class TestAReplyIsLost:
    """The command was executed, and the client heard nothing."""

    def test_it_is_asked_again_or_the_caller_hears_it_and_only_earlier_holds_stay(self, one: Bench) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        for what in (lock.acquire, lock.release):
            with replies_lost(executed=2):
                first.do(what)
        with replies_lost(executed=1), pytest.raises(LockUnavailable):
            first.do(lambda: lock.acquire(wait_seconds=0))
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
        hold = second.do(lock._hold)
        with replies_lost(executed=1), pytest.raises(LockUnavailable):
            second.do(lambda: lock.acquire(wait_seconds=0))
        second.do(lambda: lock.run(lock._undo(hold.holder, "never sent", (0, 1))))
        assert second.do(lock._hold) is hold
        assert first.do(lambda: lock.acquire(wait_seconds=0)) is False
        second.do(lock.release)
        assert first.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_an_unanswered_release_and_then_another_hold(self, desk: Bench) -> None:
        lock = desk.make("Lock", release_seconds=0.0)
        assert lock.acquire()
        with replies_lost(executed=0, then_silent=True), pytest.raises(LockUnavailable):
            lock.release()
        assert lock.acquire()  # to the server the same holder's second one
        hold = lock._hold()
        lock.release()
        assert lock.hub().holds.get(hold.key, hold.owner) is None  # renewed no more: the lease ends it

    @pytest.mark.parametrize("unanswered", ["release", "acquire"])
    def test_permits_in_doubt_are_not_given_twice(self, desk: Bench, unanswered: str) -> None:
        permits = desk.make("Semaphore", permits=3, release_seconds=0.0)
        first, *others = desk.actors(3)
        for actor in others:
            assert actor.do(permits.acquire)
        if unanswered == "release":
            assert first.do(permits.acquire)
            with replies_lost(executed=0, then_silent=True), pytest.raises(LockUnavailable):
                first.do(permits.release)
        else:
            with replies_lost(executed=1, then_silent=True), pytest.raises(LockUnavailable):
                first.do(lambda: permits.acquire(wait_seconds=0))
        assert first.do(lambda: permits.held) == 0
        assert first.do(lambda: permits.acquire(2, wait_seconds=0)) is False  # one may be at work, and two are
        others[0].do(permits.release)
        assert first.do(lambda: permits.acquire(wait_seconds=0)) is True
        first.do(permits.release)

    def test_permits_whose_acquire_is_undone_are_free(self, desk: Bench) -> None:
        semaphore = desk.make("Semaphore", permits=5)
        expirable = desk.make("PermitExpirableSemaphore", permits=5)
        for take in (semaphore.drain, lambda: expirable.acquire_many(3, lease_seconds=60, wait_seconds=0)):
            with replies_lost(executed=1), pytest.raises(LockUnavailable):
                take()
        assert [semaphore.available(), expirable.available()] == [5, 5]

    def test_a_latch_answers_the_same_again_and_knows_copies_for_the_one_before(self, desk: Bench) -> None:
        latch = desk.make("CountDownLatch")
        with replies_lost(executed=1):
            assert latch.open(1) is True
        with replies_lost(executed=1):
            assert latch.count_down() == 0
        opening, counting = ("open", "request:1", 1, 60_000), ("down", "request:2")

        def send(*arguments: Any) -> Any:
            return latch.run(latch._insist(*arguments))

        assert [send(*opening), send(*counting)] == [1, 0]
        desk.plain.hset(latch._keys[2], "request:0", "3 1600000000")  # of long ago
        assert latch.open(2) is True
        assert [send(*opening), send(*counting)] == [1, 0]
        assert latch.count() == 2
        assert not desk.plain.hexists(latch._keys[2], "request:0")
        assert [desk.plain.pttl(key) > 0 for key in desk.plain.keys("*:latch:*")] == [True, True]


class TestACopyComesLate:
    """A network or a client sends a command once more, and its owner has gone on."""

    @pytest.fixture
    def again(self, desk: Bench) -> Iterator[Callable[[int], Any]]:
        sent: list[tuple[Script, Any]] = []
        with commands_pass(lambda script, arguments: sent.append((script, arguments[1:]))) as once:

            def again(number: int) -> Any:
                script, what = sent[number]
                return once(script, ClientConnection(desk.plain), *what)

            yield again

    @pytest.mark.parametrize("owner", [None, "order 17"])
    def test_of_a_release(self, desk: Bench, again: Callable[[int], Any], owner: str | None) -> None:
        lock, other = desk.make("Lock", owner=owner), desk.make("Lock", owner="another")
        for what in (lock.acquire, lock.release, lock.acquire):
            what()
        again(1)
        assert other.acquire(wait_seconds=0) is False
        lock.release()

    def test_of_an_acquire_or_an_inner_release(self, desk: Bench, again: Callable[[int], Any]) -> None:
        lock, other = desk.make("Lock"), desk.make("Lock", owner="another")
        for what in (lock.acquire, lock.acquire, lock.release, lock.acquire):
            what()
        for number in (2, 0, 1):
            again(number)
        lock.release()
        assert other.acquire(wait_seconds=0) is False
        lock.release()
        for number in (0, 1, 2, 3):
            again(number)
        assert other.acquire(wait_seconds=0) is True
        other.release()

    def test_of_one_that_was_given_up(self, desk: Bench, again: Callable[[int], Any]) -> None:
        lock, waiter = desk.make("Lock"), desk.make("Lock", owner="another")
        lock.acquire()
        assert waiter.acquire(wait_seconds=0.05) is False
        again(1)
        assert desk.queue() == 0
        lock.release()
        again(1)
        assert lock.acquire(wait_seconds=0) is True
        lock.release()

    def test_after_its_undoing(self, desk: Bench) -> None:
        lock = desk.make("Lock")
        hub = lock.hub()
        late, owner = hub.new_request(), named("late")
        lock.run(lock._undo(owner, late, (0, 1)))
        arguments = [lock._terms(hub, (0, 1), 30.0), late, owner.name, hub.channel, "1", "0"]
        assert places._ACQUIRE.run(ClientConnection(desk.plain), lock._keys, arguments)[0] != 1
        assert lock.acquire(wait_seconds=0) is True
        lock.release()
