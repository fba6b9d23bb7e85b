"""What is known to break other locks, done to ours: commands that run twice, answers and messages that are lost."""

import _thread
import asyncio
import contextlib
import hashlib
import math
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import redis
from asgiref.sync import sync_to_async
from redis.asyncio import RedisCluster

from idempotency import locks
from idempotency.locks import LockLost, LockUnavailable, NotHeld, Rate, RateExceeded, ratelimit
from idempotency.locks.engine import holds, places
from idempotency.locks.engine.holder import Holder, named
from idempotency.locks.engine.holds import LONGEST_SECONDS
from idempotency.locks.engine.hub import Hub, script, tagged
from idempotency.locks.engine.threads import hub_of
from idempotency.redis import mailbox
from idempotency.redis.connection import ClientConnection
from idempotency.redis.fastpath import Script
from idempotency.redis.mailbox import Mailbox
from idempotency.redis.subscription import Subscription
from tests.integration.idempotency.locks.actors import Actor, until
from tests.integration.idempotency.locks.conftest import Bench, a_bench
from tests.integration.idempotency.locks.worker import workers


@pytest.fixture
def desk(servers: Callable[[str], Any]) -> Iterator[Bench]:
    """Threads over one Redis."""
    with a_bench("Redis", servers("Redis"), tasks=False) as made:
        yield made


@pytest.fixture
def desk_of_tasks(servers: Callable[[str], Any]) -> Iterator[Bench]:
    """asyncio over one Redis."""
    with a_bench("Redis", servers("Redis"), tasks=True) as made:
        yield made


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not renewed is soon over."""
    monkeypatch.setattr(places, "LEASE_SECONDS", 1.0)


@contextlib.contextmanager
def silence(*, executed: int = 0) -> Iterator[None]:
    """No command is answered. The first ones are executed, as many as are said; the others do not even arrive."""
    once, once_async = Script.run, Script.run_async
    left = [None] * executed

    def run(script: Script, *arguments: Any) -> Any:
        if left:
            left.pop()
            once(script, *arguments)
        raise redis.TimeoutError

    async def run_async(script: Script, *arguments: Any) -> Any:
        if left:
            left.pop()
            await once_async(script, *arguments)
        raise redis.TimeoutError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Script, "run", run)
        patched.setattr(Script, "run_async", run_async)
        yield


class TestEveryCommandRunsTwice:
    """As redis-py does by itself when an answer is late."""

    @pytest.fixture(autouse=True)
    def _twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        once, once_async = Script.run, Script.run_async

        def run(script: Script, *arguments: Any) -> Any:
            once(script, *arguments)
            return once(script, *arguments)

        async def run_async(script: Script, *arguments: Any) -> Any:
            await once_async(script, *arguments)
            return await once_async(script, *arguments)

        monkeypatch.setattr(Script, "run", run)
        monkeypatch.setattr(Script, "run_async", run_async)

    def test_a_lock_is_taken_and_given_back_once(self, one: Bench) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        assert first.do(lock.acquire)
        first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        waiting = second.begin(lock.acquire)
        one.waits(1)
        first.do(lock.release)
        assert waiting.result(30) is True
        assert first.do(lambda: lock.acquire(wait_seconds=0)) is False
        second.do(lock.release)
        with pytest.raises(NotHeld):
            second.do(lock.release)

    def test_a_holder_is_put_out_once(self, one: Bench) -> None:
        lock = one.make("Lock")
        holder, waiter, other = one.actors(3)
        assert holder.do(lock.acquire)
        holder.do(lambda: lock.extend(60))
        waiting = waiter.begin(lock.acquire)
        one.waits(1)
        assert other.do(lock.force_release) is True
        assert waiting.result(30) is True
        assert waiter.do(lock.hold_count) == 1

    def test_so_is_everything_else(self, one: Bench) -> None:
        actor = one.actor()
        semaphore = one.make("Semaphore", permits=2)
        assert [actor.do(lambda: semaphore.acquire(wait_seconds=0)) for _ in range(3)] == [True, True, False]
        actor.do(semaphore.release)
        assert [actor.do(lambda: semaphore.acquire(wait_seconds=0)) for _ in range(2)] == [True, False]
        actor.do(lambda: semaphore.release(2))
        assert [actor.do(lambda: semaphore.add(3)), actor.do(semaphore.drain), actor.do(semaphore.drain)] == [
            5,
            5,
            0,
        ]
        assert actor.do(lambda: semaphore.set_total(9, if_absent=True)) is False
        assert actor.do(lambda: semaphore.set_total(None)) is True
        actor.do(lambda: semaphore.release(2))
        named = one.make("Semaphore", "named", permits=3, owner="order 17")
        assert [actor.do(lambda: named.acquire(wait_seconds=0)) for _ in range(3)] == [True] * 3
        actor.do(lambda: named.release(2))
        assert (actor.do(semaphore.acquired), actor.do(named.acquired)) == (3, 1)
        several = one.make("PermitExpirableSemaphore", permits=3)
        names = actor.do(lambda: several.acquire_many(3, lease_seconds=60))
        actor.do(lambda: several.release(*names[1:]))
        assert actor.do(several.available) == 2
        latch = one.make("CountDownLatch")
        assert actor.do(lambda: latch.open(3)) is True
        assert [actor.do(latch.count_down) for _ in range(3)] == [2, 1, 0]
        assert actor.do(lambda: latch.open(1)) is True
        assert [actor.do(latch.delete) for _ in range(2)] == [True, False]
        limiter = one.make("RateLimiter", permits=2, interval_seconds=60)
        actor.do(limiter.acquire)
        actor.do(limiter.acquire)
        with pytest.raises(RateExceeded):
            actor.do(limiter.acquire)
        for kind in ("RateLimiter", "TokenBucket"):
            limiter = one.make(kind, f"{kind}s", permits=4, interval_seconds=600)
            actor.do(lambda limiter=limiter: limiter.acquire(3))
            actor.do(limiter.release)
            assert actor.do(limiter.available) == 2
            assert [actor.do(lambda limiter=limiter: limiter.set_rate(Rate(3, 600), if_absent=True))] == [True]
            assert [actor.do(limiter.delete), actor.do(limiter.delete)] == [True, False]
        seen = one.make("ExpiringSet", ttl_seconds=60)
        assert [actor.do(lambda: seen.add("a")) for _ in range(2)] == [True, False]


class TestAnAnswerIsLost:
    """The command was executed, and the client heard nothing."""

    @pytest.fixture(autouse=True)
    def lose(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        self.left = 0
        once, once_async = Script.run, Script.run_async

        def lost(answer: Any) -> Any:
            if self.left:
                self.left -= 1
                raise redis.TimeoutError
            return answer

        def run(script: Script, *arguments: Any) -> Any:
            return lost(once(script, *arguments))

        async def run_async(script: Script, *arguments: Any) -> Any:
            return lost(await once_async(script, *arguments))

        monkeypatch.setattr(Script, "run", run)
        monkeypatch.setattr(Script, "run_async", run_async)

        def some(count: int) -> None:
            self.left = count

        return some

    def test_it_is_asked_again(self, one: Bench, lose: Callable[[int], None]) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        lose(2)
        assert first.do(lock.acquire) is True
        lose(2)
        first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_who_does_not_wait_is_told_and_nothing_stays(self, one: Bench, lose: Callable[[int], None]) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        lose(1)
        with pytest.raises(LockUnavailable):
            first.do(lambda: lock.acquire(wait_seconds=0))
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_an_inner_acquire_that_failed_leaves_the_outer_one(
        self, one: Bench, lose: Callable[[int], None]
    ) -> None:
        lock = one.make("Lock")
        actor = one.actor()
        assert actor.do(lock.acquire)
        hold = actor.do(lock._hold)
        lose(1)
        with pytest.raises(LockUnavailable):
            actor.do(lambda: lock.acquire(wait_seconds=0))
        assert actor.do(lock._hold) is hold
        assert one.actor().do(lambda: lock.acquire(wait_seconds=0)) is False
        actor.do(lock.release)
        assert one.actor().do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_so_does_one_that_never_arrived(self, one: Bench) -> None:
        lock = one.make("Lock")
        actor = one.actor()
        assert actor.do(lock.acquire)
        hold = actor.do(lock._hold)
        actor.do(lambda: lock.run(lock._undo(hold.holder, "never sent", (0, 1))))
        assert actor.do(lock._hold) is hold
        actor.do(lock.release)

    def test_an_unanswered_release_and_then_another_hold(self, one: Bench, lose: Callable[[int], None]) -> None:
        lock = one.make("Lock", release_seconds=0.0)
        actor = one.actor()
        assert actor.do(lock.acquire)
        with silence(), pytest.raises(LockUnavailable):
            actor.do(lock.release)
        assert actor.do(lock.acquire)  # to the server the same holder's second one
        hold = actor.do(lock._hold)
        actor.do(lock.release)
        hub = actor.do(lock.hub)
        assert hub.holds.get(hold.key, hold.owner) is None  # renewed no more: the lease ends it

    @pytest.mark.parametrize("unanswered", ["release", "acquire"])
    def test_permits_in_doubt_are_not_given_twice(self, one: Bench, unanswered: str) -> None:
        permits = one.make("Semaphore", permits=3, release_seconds=0.0)
        first, *others = one.actors(3)
        for actor in others:
            assert actor.do(permits.acquire)
        if unanswered == "release":
            assert first.do(permits.acquire)
            with silence(), pytest.raises(LockUnavailable):
                first.do(permits.release)
        else:
            with silence(executed=1), pytest.raises(LockUnavailable):
                first.do(lambda: permits.acquire(wait_seconds=0))
        assert first.do(lambda: permits.held) == 0
        assert first.do(lambda: permits.acquire(2, wait_seconds=0)) is False  # one may be at work, and two are
        others[0].do(permits.release)
        assert first.do(lambda: permits.acquire(wait_seconds=0)) is True
        first.do(permits.release)

    def test_a_latch_tells_the_same_again(self, one: Bench, lose: Callable[[int], None]) -> None:
        latch, actor = one.make("CountDownLatch"), one.actor()
        lose(1)
        assert actor.do(lambda: latch.open(1)) is True
        lose(1)
        assert actor.do(latch.count_down) == 0

    def test_a_latch_that_was_opened_anew_knows_copies_for_the_one_before(self, one: Bench) -> None:
        latch, actor = one.make("CountDownLatch"), one.actor()
        opening, counting = ("open", "request:1", 1, 60_000), ("down", "request:2")

        def send(*arguments: Any) -> Any:
            return actor.do(lambda: latch.run(latch._insist(*arguments)))

        assert [send(*opening), send(*counting)] == [1, 0]
        one.plain.hset(latch._keys[2], "request:0", "3 1600000000")  # of long ago
        assert actor.do(lambda: latch.open(2)) is True
        assert [send(*opening), send(*counting)] == [1, 0]
        assert actor.do(latch.count) == 2
        assert not one.plain.hexists(latch._keys[2], "request:0")
        assert [one.plain.pttl(key) > 0 for key in one.plain.keys("*:latch:*")] == [True, True]


class TestACopyComesLate:
    """A network or a client sends a command once more, and its owner has gone on."""

    @pytest.fixture
    def again(self, one: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
        once, once_async = Script.run, Script.run_async
        sent: list[tuple[Script, Any, Any]] = []

        def run(script: Script, ask: Any, *what: Any) -> Any:
            sent.append((script, *what))
            return once(script, ask, *what)

        async def run_async(script: Script, ask: Any, *what: Any) -> Any:
            sent.append((script, *what))
            return await once_async(script, ask, *what)

        def again(number: int) -> Any:
            script, *what = sent[number]
            return once(script, ClientConnection(one.plain), *what)

        monkeypatch.setattr(Script, "run", run)
        monkeypatch.setattr(Script, "run_async", run_async)
        return again

    @pytest.mark.parametrize("owner", [None, "order 17"])
    def test_of_a_release(self, one: Bench, again: Callable[[int], Any], owner: str | None) -> None:
        lock, other = one.make("Lock", owner=owner), one.make("Lock", owner="another")
        actor = one.actor()
        for what in (lock.acquire, lock.release, lock.acquire):
            actor.do(what)
        again(1)
        assert one.actor().do(lambda: other.acquire(wait_seconds=0)) is False
        actor.do(lock.release)

    def test_of_an_acquire_or_an_inner_release(self, one: Bench, again: Callable[[int], Any]) -> None:
        lock = one.make("Lock")
        actor, other = one.actors(2)
        for what in (lock.acquire, lock.acquire, lock.release, lock.acquire):
            actor.do(what)
        for number in (2, 0, 1):
            again(number)
        actor.do(lock.release)
        assert other.do(lambda: lock.acquire(wait_seconds=0)) is False
        actor.do(lock.release)
        for number in (0, 1, 2, 3):
            again(number)
        assert other.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_of_one_that_was_given_up(self, one: Bench, again: Callable[[int], Any]) -> None:
        lock = one.make("Lock")
        holder, waiter = one.actors(2)
        holder.do(lock.acquire)
        assert waiter.do(lambda: lock.acquire(wait_seconds=0.05)) is False
        again(1)
        assert one.queue() == 0
        holder.do(lock.release)
        again(1)
        assert holder.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_after_its_undoing(self, one: Bench) -> None:
        lock, actor = one.make("Lock"), one.actor()
        hub = actor.do(lock.hub)
        late, owner = hub.new_request(), named("") if one.loop is None else Holder("task", lambda: True)
        actor.do(lambda: lock.run(lock._undo(owner, late, (0, 1))))
        terms = lock._terms(hub, (0, 1), 30.0)
        arguments = [terms, late, owner.name, hub.channel, "1", "0"]
        assert places._ACQUIRE.run(ClientConnection(one.plain), lock._keys, arguments)[0] != 1
        assert actor.do(lambda: lock.acquire(wait_seconds=0)) is True


def test_several_are_not_taken_while_one_was_lost_meanwhile(one: Bench) -> None:
    both = [one.make("Lock", name, owner="me") for name in "ab"]
    several = one.locks.MultiLock(both)
    first, second = one.actors(2)
    assert first.do(one.make("Lock", "b").acquire)
    taking = second.begin(several.acquire)
    one.waits(1, "b")
    lost = first.do(both[0]._hold)
    lost.gone = True
    first.do(one.make("Lock", "b").release)
    assert taking.result(30) is True
    assert second.do(lambda: (several.held, several.lost)) == (True, False)
    assert second.do(lambda: both[0].token) > lost.token
    second.do(several.release)


def test_an_interrupted_release_is_renewed_no_more(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    lock = desk.make("Lock")
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(Script, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.release()
    assert lock._hold() is None


def test_what_was_lost_is_released_before_it_is_taken_again(one: Bench) -> None:
    lock = one.make("Lock")
    actor, other = one.actors(2)
    assert actor.do(lambda: lock.acquire(lease_seconds=0.02))
    assert other.do(lock.acquire)
    other.do(lock.release)
    with pytest.raises(LockLost):  # a `with` around it must hear of it
        actor.do(lock.enter)
    assert actor.do(lambda: lock.lost) is True
    # who lets a lease run out, and releases nothing, may have another
    assert actor.do(lambda: lock.acquire(lease_seconds=30)) is True
    assert actor.do(lambda: lock.lost) is False
    one.forget()  # what this process has not heard yet
    with pytest.raises(LockLost):
        actor.do(lambda: lock.acquire(wait_seconds=0))
    assert actor.do(lambda: lock.lost) is True
    assert other.do(lambda: lock.acquire(wait_seconds=0)) is True


def test_an_inner_acquire_without_a_lease_is_renewed(one: Bench, early_renewals: None) -> None:
    lock, actor = one.make("Lock"), one.actor()
    assert actor.do(lambda: lock.acquire(lease_seconds=20))
    assert actor.do(lock.acquire)
    hold = actor.do(lock._hold)
    for _ in range(2):
        due_at = hold.due_at
        until(lambda due_at=due_at: hold.due_at > due_at)
    assert not hold.lost
    actor.do(lock.release)
    actor.do(lock.release)


def test_what_is_given_for_later_is_not_forgotten_for_what_is_given_now(desk: Bench) -> None:
    def give(caller: str) -> None:
        limiter = desk.make("RateLimiter", permits=9, interval_seconds=60, permits_per_client=1)
        ask = limiter._ask("acquire", 1, 10**9, caller, caller=caller)
        assert ratelimit._LIMIT.run(ClientConnection(desk.plain), ask.keys, ask.arguments)[0][0] == 1

    for caller in ("one", "one", "two"):
        give(caller)
    assert desk.plain.pttl(tagged("rate", "thing")) > 100_000


def test_the_names_of_two_sets_do_not_run_into_each_other(one: Bench) -> None:
    actor = one.actor()
    new = [
        actor.do(lambda name=name, member=member: one.make("ExpiringSet", name, ttl_seconds=60).add(member))
        for name, member in [("a:b", "c"), ("a", "b:c")]
    ]
    assert new == [True, True]


class TestAMessageIsLost:
    def test_who_waits_gets_in_all_the_same(self, one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        waiting = second.begin(lock.acquire)
        one.waits(1)
        monkeypatch.setattr(mailbox.Mail, "deliver", lambda mail, data: None)
        first.do(lock.release)
        assert waiting.result(30) is True

    def test_one_message_a_release(self, one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[bytes] = []
        deliver = mailbox.Mail.deliver

        def counted(mail: mailbox.Mail, data: bytes) -> None:
            told.append(data)
            deliver(mail, data)

        monkeypatch.setattr(mailbox.Mail, "deliver", counted)
        lock = one.make("Lock")
        holder, *waiters = one.actors(6)
        assert holder.do(lock.acquire)
        warm = waiters[0].begin(lock.acquire)  # a connection that was cut off in another test is made again now
        one.waits(1)
        holder.do(lock.release)
        assert warm.result(30)
        waiters[0].do(lock.release)
        assert holder.do(lock.acquire)
        told.clear()
        answers = [waiter.begin(lock.acquire) for waiter in waiters]
        one.waits(5)
        holder.do(lock.release)
        until(lambda: any(answer.done() for answer in answers))
        assert (len(told), sum(answer.done() for answer in answers)) == (1, 1)
        while waiters:
            winner = next(each for each, answer in zip(waiters, answers, strict=True) if answer.done())
            at = waiters.index(winner)
            waiters.pop(at), answers.pop(at)
            winner.do(lock.release)
            if answers:
                until(lambda: any(answer.done() for answer in answers))


class TestTheServer:
    def test_a_restart_is_survived_by_who_waits(self, one: Bench) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        waiting = second.begin(lock.acquire)
        one.waits(1)
        one.servers.kill()
        one.servers.start()
        assert waiting.result(30) is True
        with pytest.raises(LockLost):
            first.do(lock.release)
        second.do(lock.release)

    def test_connections_that_are_cut_off_are_made_again(self, one: Bench, early_renewals: None) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        waiting = second.begin(lock.acquire)
        one.waits(1)
        for _ in range(3):
            with one.servers.data_nodes() as (server,):
                server.client_kill_filter(_type="normal", skipme=True)
                server.client_kill_filter(_type="pubsub")
            end = first.do(lock._hold).ends_at
            until(lambda end=end: first.do(lock._hold).ends_at > end, "it is renewed")
        assert not waiting.done()
        first.do(lock.release)
        assert waiting.result(30) is True
        second.do(lock.release)

    def test_one_that_does_not_answer_is_named_and_a_release_is_not_waited_for(self, one: Bench) -> None:
        lock = one.make("Lock", release_seconds=0.0)
        actor = one.actor()
        assert actor.do(lock.acquire)
        one.servers.kill()
        try:
            with pytest.raises(LockUnavailable):
                actor.do(lock.release)
            with pytest.raises(LockUnavailable):
                actor.do(lambda: lock.acquire(wait_seconds=0))
            assert actor.do(lambda: lock.held) is False
        finally:
            one.servers.start()


class TestTheWatchdog:
    def test_it_renews_for_longer_than_a_lease(self, one: Bench, early_renewals: None, monkeypatch: Any) -> None:
        monkeypatch.setattr(places, "LEASE_SECONDS", 3.0)
        lock, actor = one.make("Lock"), one.actor()
        assert actor.do(lock.acquire)
        for _ in range(110):
            end = actor.do(lock._hold).ends_at
            until(lambda end=end: actor.do(lock._hold).ends_at > end)
        assert one.actor().do(lambda: lock.acquire(wait_seconds=0)) is False
        actor.do(lock.release)

    def test_what_a_waiter_was_granted_is_confirmed(self, one: Bench) -> None:
        lock = one.make("Lock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        waiting = second.begin(lock.acquire)
        one.waits(1)
        first.do(lock.release)
        assert waiting.result(30) is True
        until(lambda: second.do(lock._hold).confirmed)
        second.do(lock.release)

    def test_not_for_longer_than_it_may(self, one: Bench, short_leases: None) -> None:
        lock = one.make("Lock", hold_seconds_max=0.2)
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        assert second.do(lock.acquire) is True
        assert first.do(lambda: lock.lost) is True

    def test_not_for_a_holder_that_is_gone(self, desk: Bench, short_leases: None) -> None:
        thread = threading.Thread(target=desk.make("Lock").acquire)
        thread.start()
        thread.join()
        assert desk.make("Lock").acquire() is True
        desk.make("Lock").release()

    def test_not_for_a_thread_that_python_did_not_start_and_that_is_gone(
        self, desk: Bench, short_leases: None
    ) -> None:
        """As those of mod_wsgi and uWSGI: `threading` takes such a thread for alive for ever."""
        ended = threading.Event()
        _thread.start_new_thread(lambda: (desk.make("Lock").acquire(), ended.set()), ())
        assert ended.wait(30)
        assert desk.make("Lock").acquire(wait_seconds=20) is True
        desk.make("Lock").release()

    def test_for_a_thread_that_python_did_not_start(self, desk: Bench, early_renewals: None) -> None:
        lock, answer, ends = desk.make("Lock"), queue.SimpleQueue[Any](), threading.Event()

        def work() -> None:
            lock.acquire()
            answer.put(lock._hold())
            ends.wait(30)
            answer.put(lock.release())

        _thread.start_new_thread(work, ())
        hold = answer.get(timeout=30)
        for _ in range(3):
            end = hold.ends_at
            until(lambda end=end: hold.ends_at > end, "it is renewed")
        ends.set()
        assert answer.get(timeout=30) is None

    def test_not_under_a_lease_of_ones_own(self, one: Bench) -> None:
        lock = one.make("Lock", lease_seconds=30)
        actor = one.actor()
        assert actor.do(lock.acquire)
        assert actor.do(lock._hold).due_at is None
        actor.do(lock.release)

    def test_what_the_server_forgot_is_told(self, one: Bench, early_renewals: None) -> None:
        lock = one.make("Lock")
        actor = one.actor()
        assert actor.do(lock.acquire)
        hold = actor.do(lock._hold)
        one.forget()
        until(lambda: hold.gone)
        assert actor.do(lambda: lock.lost) is True
        with pytest.raises(LockLost):
            actor.do(lock.release)


def test_a_live_waiter_that_is_cut_off_keeps_its_place_in_a_fair_lock(desk: Bench) -> None:
    with workers(desk.servers.url, 3) as (cut_off, second, third), desk.servers.data_nodes() as (server,):
        lock = desk.make("FairLock")
        assert lock.acquire()
        others = set(server.pubsub_channels())
        cut_off.begin("lock.acquire()", kind="FairLock")
        desk.waits(1)
        (channel,) = set(server.pubsub_channels()) - others
        cut_off.stop()
        server.client_kill_filter(_type="pubsub")
        second.begin("lock.acquire()", kind="FairLock")
        desk.waits(2)
        lock.release()
        assert second.answer() is True  # the first one is passed over for now
        assert desk.queue() == 1
        third.begin("lock.acquire()", kind="FairLock")
        desk.waits(2)
        cut_off.go_on()
        until(lambda: channel in server.pubsub_channels())
        second.do("lock.release()", kind="FairLock")
        assert cut_off.answer() is True
        cut_off.do("lock.release()", kind="FairLock")
        assert third.answer() is True


class TestALongestTime:
    """What PEXPIRE would refuse after the key is written is refused before."""

    WAYS: ClassVar[dict[str, Callable[[Bench, float], Any]]] = {
        "Lock": lambda one, long: one.make("Lock", lease_seconds=long).acquire(),
        "Lock.acquire": lambda one, long: one.make("Lock").acquire(lease_seconds=long),
        "Semaphore": lambda one, long: one.make("Semaphore", permits=1).acquire(lease_seconds=long),
        "Permits": lambda one, long: one.make("PermitExpirableSemaphore", permits=1).acquire(lease_seconds=long),
        "Latch": lambda one, long: one.make("CountDownLatch").open(1, life_seconds=long),
        "Rate": lambda one, long: one.make("RateLimiter", permits=1, interval_seconds=long).acquire(),
        "Set": lambda one, long: one.make("ExpiringSet", ttl_seconds=long).add("a"),
    }

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("seconds", [sys.maxsize, 2**53, LONGEST_SECONDS * 1.001, math.inf, 0])
    def test_more_is_refused_and_nothing_written(self, one: Bench, way: str, seconds: float) -> None:
        with pytest.raises(ValueError, match=r"(lease|life|interval|ttl)_seconds must be above 0 and at most"):
            one.actor().do(lambda: self.WAYS[way](one, seconds))
        assert one.plain.keys("*") == []

    @pytest.mark.parametrize("way", WAYS)
    def test_as_much_is_taken_and_ends(self, one: Bench, way: str) -> None:
        one.actor().do(lambda: self.WAYS[way](one, LONGEST_SECONDS))
        assert all(one.plain.pttl(key) > 0 for key in one.plain.keys("*"))
        assert one.plain.keys("*")

    def test_a_permit_is_not_prolonged_for_longer(self, one: Bench) -> None:
        permits = one.make("PermitExpirableSemaphore", permits=1)
        actor = one.actor()
        permit = actor.do(lambda: permits.acquire(lease_seconds=60))
        with pytest.raises(ValueError, match="lease_seconds"):
            actor.do(lambda: permits.prolong(permit, lease_seconds=sys.maxsize))
        actor.do(lambda: permits.release(permit))


class TestTasks:
    def test_a_child_task_is_another_holder(self, desk_of_tasks: Bench) -> None:
        lock = desk_of_tasks.make("Lock")

        async def story() -> tuple[bool, bool, str]:
            assert await lock.acquire()
            child = await asyncio.create_task(lock.acquire(wait_seconds=0))
            same = await lock.acquire(wait_seconds=0)
            with pytest.raises(NotHeld) as refused:
                await asyncio.create_task(lock.release())
            await lock.release()
            await lock.release()
            return child, same, str(refused.value)

        assert desk_of_tasks.run(story())[:2] == (False, True)

    def test_a_cancelled_acquire_leaves_nothing(self, desk_of_tasks: Bench) -> None:
        lock = desk_of_tasks.make("Lock")
        holder, waiter = desk_of_tasks.actors(2)
        assert holder.do(lock.acquire)
        waiting = waiter.begin(lock.acquire)
        desk_of_tasks.waits(1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            waiting.result(30)
        desk_of_tasks.waits(0)
        holder.do(lock.release)
        assert waiter.do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_one_that_is_cancelled_while_it_is_asked_for_is_given_back(
        self, desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = desk_of_tasks.make("Lock")
        once = Script.run_async
        asked = threading.Event()

        async def slow(script: Script, *arguments: Any) -> Any:
            answer = await once(script, *arguments)
            if not asked.is_set():
                asked.set()
                await asyncio.sleep(0.05)  # the answer is on its way; the cancellation comes in this while
            return answer

        monkeypatch.setattr(Script, "run_async", slow)
        actor = desk_of_tasks.actor()
        acquiring = actor.begin(lock.acquire)
        assert asked.wait(30)
        actor.cancel()
        with pytest.raises(asyncio.CancelledError):
            acquiring.result(30)
        assert desk_of_tasks.actor().do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_a_cancelled_release_is_done(self, desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        lock = desk_of_tasks.make("Lock")
        once = Script.run_async
        asked = threading.Event()

        async def slow(script: Script, *arguments: Any) -> Any:
            asked.set()
            await asyncio.sleep(0.05)
            return await once(script, *arguments)

        actor = desk_of_tasks.actor()
        assert actor.do(lock.acquire)
        monkeypatch.setattr(Script, "run_async", slow)
        releasing = actor.begin(lock.release)
        assert asked.wait(30)
        actor.cancel()
        with pytest.raises(asyncio.CancelledError):
            releasing.result(30)
        assert actor.do(lambda: lock.held) is False
        assert desk_of_tasks.actor().do(lambda: lock.acquire(wait_seconds=0)) is True

    def test_a_named_owner_crosses_into_a_thread(self, desk_of_tasks: Bench, desk: Bench) -> None:
        lock = desk_of_tasks.make("Lock", owner="order 17")
        beside = desk.make("Lock", owner="order 17")
        other = desk.make("Lock", owner="order 18")

        async def story() -> list[bool]:
            assert await lock.acquire()
            inside = await sync_to_async(beside.acquire)(wait_seconds=0)
            stranger = await sync_to_async(other.acquire)(wait_seconds=0)
            await sync_to_async(beside.release)()
            await lock.release()
            return [inside, stranger, await sync_to_async(other.acquire)(wait_seconds=0)]

        assert desk_of_tasks.run(story()) == [True, False, True]
        other.release()  # a named owner, and what it holds, outlives this test

    def test_a_loop_has_one_subscriber(self, desk_of_tasks: Bench) -> None:
        holder, *waiters = desk_of_tasks.actors(30)
        lock = desk_of_tasks.make("Lock")
        with desk_of_tasks.servers.data_nodes() as (server,):
            others = {each["id"] for each in server.client_list(_type="pubsub")}
            assert holder.do(lock.acquire)
            answers = [each.begin(lambda: _in_and_out(lock)) for each in waiters]
            desk_of_tasks.waits(29)
            assert len({each["id"] for each in server.client_list(_type="pubsub")} - others) == 1
        holder.do(lock.release)
        assert [answer.result(30) for answer in answers] == [None] * 29


async def _in_and_out(lock: Any) -> None:
    async with lock:
        pass


class TestCosts:
    """Counted by the server."""

    def commands(self, bench: Bench, what: Callable[[], Any]) -> dict[str, int]:
        with bench.servers.data_nodes() as (server,):
            server.config_resetstat()
            what()
            told = server.info("commandstats")
        # a script's own calls are its affair
        counted = {"evalsha", "eval", "subscribe"}
        return {name[8:]: stats["calls"] for name, stats in told.items() if name[8:] in counted}

    def test_uncontended(self, one: Bench) -> None:
        lock, actor = one.make("Lock"), one.actor()
        actor.do(lock.acquire)
        actor.do(lock.release)

        def pair() -> None:
            actor.do(lock.acquire)
            actor.do(lock.release)

        assert self.commands(one, pair) == {"evalsha": 2}

    def test_a_hand_over(self, one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(places, "CONFIRM_SECONDS", 10.0)  # however slow this machine is
        monkeypatch.setattr(places, "CLAIM_SECONDS", 30.0)
        lock = one.make("FairLock")
        first, second = one.actors(2)
        assert first.do(lock.acquire)

        def change_hands() -> None:
            waiting = second.begin(lock.acquire)
            one.waits(1)
            first.do(lock.release)
            assert waiting.result(30) is True

        for _ in range(2):  # a connection that was cut off in another test is missed, and then made again
            change_hands()
            second.do(lock.release)
            assert first.do(lock.acquire)
        assert self.commands(one, change_hands) == {"evalsha": 2}
        second.do(lock.release)


def test_every_hub_has_a_channel_of_its_own() -> None:
    class Silent(Hub):
        def bell(self) -> None: ...
        def stir(self) -> None: ...

    one, two = Silent(None, Mailbox()), Silent(RedisCluster("nowhere"), Mailbox())
    assert one.channel != two.channel
    assert (one.counted, two.counted) == (True, False)


class TestTheProjectsOwnClient:
    """Without `client=` django-redis gives every thread a client of its own."""

    def test_threads_of_a_process_share_limits_and_a_subscriber(self, redis_server: redis.Redis) -> None:
        actors = [Actor() for _ in range(4)]
        limiter = locks.RateLimiter("shared", permits=1, interval_seconds=60)

        def limited() -> bool:
            try:
                limiter.acquire()
            except RateExceeded:
                return False
            return True

        assert [actor.do(limited) for actor in actors] == [True, False, False, False]
        seen = locks.ExpiringSet("shared", ttl_seconds=60)
        assert [actor.do(lambda: seen.add("a")) for actor in actors] == [True, False, False, False]
        permits = locks.PermitExpirableSemaphore("shared", permits=1)
        given = [actor.do(lambda: permits.acquire(lease_seconds=60, wait_seconds=0)) for actor in actors]
        assert [permit is not None for permit in given] == [True, False, False, False]
        assert len({id(actor.do(lambda: locks.Lock("shared").hub())) for actor in actors}) == 1
        for actor in actors:
            actor.end()

    def test_two_clients_of_one_server_are_told_apart(self, desk: Bench) -> None:
        with redis.Redis.from_url(desk.servers.url) as other:
            both = [
                locks.PermitExpirableSemaphore("thing", permits=1, client=client)
                for client in (desk.client, other)
            ]
            given = [each.acquire(lease_seconds=60, wait_seconds=0) for each in both]
            assert [permit is not None for permit in given] == [True, False]


class TestOwnersThatComeOnce:
    """A task, a thread, a permit: each has a name of its own, and must leave nothing behind."""

    @pytest.fixture
    def short_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_ACQUIRE", "_RELEASE"):
            made = script("places", name[1:].lower())
            made.text = made.text.replace("local REMEMBER = 10000000", "local REMEMBER = 200000")
            made.sha = hashlib.sha1(made.text.encode()).hexdigest()
            monkeypatch.setattr(places, name, made)

    def test_the_names_of_permits_are_used_again(self, desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holds, "SWEEP_AT", 3)
        with redis.Redis.from_url(desk.servers.url) as client:
            for number in range(20):
                owner = f"order {number}"
                permits = locks.Semaphore("thing", permits=1, owner=owner, wait_seconds=0, client=client)
                with permits:
                    assert permits.held == 1
            assert desk.plain.hlen(tagged("semaphore", "thing")) == 2  # one, and the state
            assert len(hub_of(client).slots._taken) <= 5

    @pytest.mark.usefixtures("short_memory")
    @pytest.mark.parametrize("held", [0, 1])
    def test_what_they_leave_goes_and_is_not_looked_through_each_time(self, desk: Bench, held: int) -> None:
        resource = desk.make("Lock")
        resource._capacity = 2

        def take(owner: str) -> None:
            taking = resource._take_places(named(owner), (1, 0), wait_seconds=0, lease_seconds=30.0)
            assert resource.run(taking)

        with desk.servers.data_nodes() as (server,):
            server.config_resetstat()
            for number in range(held):
                take(f"stays {number}")
            most = rounds = 0
            while (left := int(server.hlen(resource._key))) >= most:
                most, rounds = left, rounds + 1
                assert rounds < 5000, "nothing is ever forgotten"
                take(f"once {rounds}")
                resource.run(resource._give_places(resource._keys, named(f"once {rounds}"), (1, 0)))
            looked_through = server.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"]
        assert looked_through <= 3 < rounds


def test_a_dead_waiter_that_would_not_fit_yet_is_passed_over(desk: Bench) -> None:
    """A writer that died in the queue must not keep readers from readers for as long as it counts as alive."""
    lock = desk.make("ReadWriteLock")
    first, second = desk.actors(2)
    assert first.do(lock.read.acquire)
    terms = lock.write._terms(hub_of(desk.client), (0, 1), 30.0)
    dead = [terms, "dead:1", "dead", "nobody-hears-this", "1", "0"]
    assert places._ACQUIRE.run(ClientConnection(desk.plain), lock.write._keys, dead)[0] == 0
    reading = second.begin(lambda: lock.read.acquire(wait_seconds=15))
    assert reading.result(30) is True
    second.do(lock.read.release)
    first.do(lock.read.release)


def test_a_subscriber_that_cannot_be_started_costs_speed_alone(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis.Redis.from_url(desk.servers.url)
    lock = locks.Lock("thing", client=client)
    first, second = desk.actors(2)
    assert first.do(lambda: lock.acquire(wait_seconds=0))

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        waiting = second.begin(lock.acquire)
        desk.waits(1)
    first.do(lock.release)
    assert waiting.result(30) is True
    second.do(lock.release)
    client.close()


def test_what_a_server_pushes_beside_messages_breaks_no_subscription(desk: Bench) -> None:
    client = redis.Redis.from_url(desk.servers.url, protocol=3)
    subscription = Subscription(client.connection_pool)
    subscription.subscribe("thing")
    assert subscription.get_message(timeout=10)
    (number,) = (each["id"] for each in client.client_list() if int(each["sub"]) == 1)
    with redis.Redis.from_url(desk.servers.url, single_connection_client=True) as tracking:
        tracking.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        tracking.get("key")
        client.set("key", "value")
        assert subscription.get_message(timeout=10) is None
    client.publish("thing", "heard")
    assert subscription.get_message(timeout=10) == {"type": "message", "channel": b"thing", "data": b"heard"}
    subscription.close()


def test_a_subscription_that_was_closed_is_not_connected_again(desk: Bench) -> None:
    subscription = Subscription(redis.Redis.from_url(desk.servers.url).connection_pool)
    subscription.subscribe("thing")
    message = subscription.get_message(timeout=10)
    assert message is not None
    assert message["type"] == "subscribe"
    subscription.connection.disconnect()
    with pytest.raises(redis.ConnectionError):
        subscription.get_message(timeout=10)
    subscription.close()
