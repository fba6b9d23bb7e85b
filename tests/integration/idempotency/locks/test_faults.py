"""Known faults of other locks: losses, failing renewals, servers away, odd threads."""

import _thread
import threading
import time
from typing import Any

import pytest

from idempotency import locks
from idempotency.locks import LockError, LockLost, LockUnavailable, RateExceeded, ratelimit
from idempotency.locks.engine import places
from idempotency.locks.engine.hub import tagged
from idempotency.redis import mailbox
from idempotency.redis.connection import ClientConnection
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench, commands_pass
from tests.integration.idempotency.locks.processes import Pool, hands


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not renewed is soon over."""
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.5)


def contended(bench: Bench) -> tuple[Any, Any, Any, Any]:
    """A lock, its holder, who waits for it, and that one's acquire."""
    lock, (first, second) = bench.make("Lock"), bench.actors(2)
    assert first.do(lock.acquire)
    waiting = second.begin(lock.acquire)
    bench.waits(1)
    return lock, first, second, waiting


def test_several_are_not_taken_while_one_was_lost_meanwhile(desk: Bench) -> None:
    both = [desk.make("Lock", name, owner="me") for name in "ab"]
    several = locks.MultiLock(both)
    first, second = desk.actors(2)
    assert first.do(desk.make("Lock", "b").acquire)
    taking = second.begin(several.acquire)
    desk.waits(1, "b")
    lost = both[0]._hold()
    lost.gone = True
    first.do(desk.make("Lock", "b").release)
    assert taking.result(30) is True
    assert (several.held, several.lost) == (True, False)
    assert both[0].token > lost.token
    second.do(several.release)


def test_a_cancel_ends_the_wait_for_all_also_while_one_is_taken(desk: Bench) -> None:
    both, b = locks.MultiLock.of(["a", "b"], client=desk.client), desk.make("Lock", "b")
    holder, waiter, other = desk.actors(3)
    assert holder.do(b.acquire)
    cancels = iter([both.cancel])
    with commands_pass(lambda *_: next(cancels, lambda: None)()):
        waiting = waiter.begin(both.acquire)
        until(lambda: waiting.done() or desk.queue("b"))
    if not waiting.done():
        holder.do(b.release)
    assert waiting.result(30) is False
    assert other.do(lambda: desk.make("Lock", "a").acquire(wait_seconds=0)) is True


def test_a_cancel_of_several_ends_no_other_wait_of_theirs(desk: Bench) -> None:
    lock = desk.make("Lock")
    both, (holder, waiter, other) = locks.MultiLock([lock]), desk.actors(3)
    assert holder.do(lock.acquire)
    waiting = waiter.begin(lock.acquire)
    desk.waits(1)
    other.do(both.cancel)
    holder.do(lock.release)
    assert waiting.result(30) is True


def test_an_interrupted_release_is_renewed_no_more(desk: Bench) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    lock = desk.make("Lock")
    assert lock.acquire()
    with commands_pass(interrupted), pytest.raises(KeyboardInterrupt):
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


def test_what_is_given_for_later_is_not_forgotten_for_what_is_given_now(desk: Bench) -> None:
    for caller in ("one", "one", "two"):
        limiter = desk.make("RateLimiter", permits=9, interval_seconds=60, permits_per_client=1)
        ask = limiter._ask("acquire", 1, 10**9, caller, caller=caller)
        assert ratelimit._LIMIT.run(ClientConnection(desk.plain), ask.keys, ask.arguments)[0][0] == 1
    assert desk.plain.pttl(tagged("rate", "thing")) > 100_000


def test_a_release_takes_no_time_away_from_who_waits(desk: Bench) -> None:
    limiter = desk.make("RateLimiter", permits=1, interval_seconds=600)
    limiter.acquire()
    waits = limiter._ask("acquire", 1, 10**10, "")
    assert ratelimit._LIMIT.run(ClientConnection(desk.plain), waits.keys, waits.arguments)[0][0] == 1
    limiter.release()
    with pytest.raises(RateExceeded) as refused:
        limiter.acquire()
    assert refused.value.retry_after_seconds > 1100  # after the one that waits


def test_a_caller_releases_its_own_permit_overall_too(desk: Bench) -> None:
    limiter = desk.make("RateLimiter", permits=9, interval_seconds=600, permits_per_client=2)
    for caller in ("one", "two"):
        limiter.acquire(caller=caller)
    limiter.release(caller="one")
    assert desk.plain.zrange(limiter._key, 0, -1) == desk.plain.zrange(f"{limiter._key}:two", 0, -1) != []


def test_the_names_of_two_sets_do_not_run_into_each_other(desk: Bench) -> None:
    for name, member in [("a:b", "c"), ("a", "b:c")]:
        assert desk.make("ExpiringSet", name, ttl_seconds=60).add(member) is True


def test_who_waits_gets_in_although_the_message_is_lost(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, first, _, waiting = contended(one)
    monkeypatch.setattr(mailbox.Mail, "deliver", lambda mail, data: None)
    first.do(lock.release)
    assert waiting.result(30) is True


def test_a_release_is_one_message_and_wakes_one_waiter(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    deliver = mailbox.Mail.deliver

    def counted(mail: mailbox.Mail, data: bytes) -> None:
        heard.append(data)
        deliver(mail, data)

    monkeypatch.setattr(mailbox.Mail, "deliver", counted)
    lock = desk.make("FairLock")
    holder, *waiters = desk.actors(4)
    assert holder.do(lock.acquire)
    answers = []
    for count, waiter in enumerate(waiters, start=1):
        answers.append(waiter.begin(lock.acquire))
        desk.waits(count)
    for leaver, answer in zip([holder, *waiters], answers, strict=False):
        heard.clear()
        leaver.do(lock.release)
        assert answer.result(30) is True
        assert len(heard) == 1
    waiters[-1].do(lock.release)


class TestTheServer:
    def test_a_restart_is_survived_by_who_waits(self, one: Bench) -> None:
        lock, first, second, waiting = contended(one)
        one.servers.kill()
        one.servers.start()
        assert waiting.result(30) is True
        with pytest.raises(LockLost):
            first.do(lock.release)
        second.do(lock.release)

    def test_connections_that_are_cut_off_are_made_again(self, one: Bench, early_renewals: None) -> None:
        lock, first, second, waiting = contended(one)
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
    def test_it_confirms_a_grant_and_renews_again_and_again_whatever_lease_there_was(
        self, one: Bench, early_renewals: None
    ) -> None:
        lock, first, actor, waiting = contended(one)
        first.do(lock.release)
        assert waiting.result(30) is True
        until(lambda: actor.do(lock._hold).confirmed)
        actor.do(lock.release)
        assert actor.do(lambda: lock.acquire(lease_seconds=20))
        assert actor.do(lock._hold).due_at is None  # not under a lease of one's own
        assert actor.do(lock.acquire)
        end = actor.do(lock._hold).ends_at
        until(lambda: actor.do(lock._hold).ends_at > end + 1.0)
        until(lambda: time.monotonic() + first.do(lock.remaining_seconds) > end + 0.5)  # the server knows
        assert first.do(lambda: lock.acquire(wait_seconds=0)) is False
        actor.do(lock.release)
        actor.do(lock.release)

    def test_not_for_longer_than_it_may(self, one: Bench, short_leases: None) -> None:
        lock = one.make("Lock", hold_seconds_max=0.2)
        first, second = one.actors(2)
        assert first.do(lock.acquire)
        assert second.do(lock.acquire) is True
        assert first.do(lambda: lock.lost) is True

    def test_not_for_a_thread_that_python_did_not_start_and_that_is_gone(
        self, desk: Bench, short_leases: None
    ) -> None:
        """As those of mod_wsgi and uWSGI: `threading` takes such a thread for alive for ever."""
        ended = threading.Event()
        _thread.start_new_thread(lambda: (desk.make("Lock").acquire(), ended.set()), ())
        assert ended.wait(30)
        assert desk.make("Lock").acquire(wait_seconds=20) is True
        desk.make("Lock").release()


def test_a_live_waiter_that_is_cut_off_keeps_its_place_in_a_fair_lock(desk: Bench, pool: Pool) -> None:
    name, (cut_off, second, third) = hands(pool(3), desk.servers.url, "FairLock")
    lock, channel = desk.make("FairLock", name), cut_off.do("lock.hub().channel")
    with desk.servers.data_nodes() as (server,):
        assert lock.acquire()
        cut_off.begin("lock.acquire()")
        desk.waits(1, name)
        cut_off.stop()
        server.client_kill_filter(_type="pubsub")
        second.begin("lock.acquire()")
        desk.waits(2, name)
        lock.release()
        assert second.answer() is True  # the first one is passed over for now
        assert desk.queue(name) == 1
        third.begin("lock.acquire()")
        desk.waits(2, name)
        cut_off.go_on()
        until(lambda: server.pubsub_numsub(channel)[0][1] == 1)
        for each in (cut_off, third):
            second.do("lock.release()")
            assert each.answer() is True
            second = each
        third.do("lock.release()")


def test_a_key_that_is_not_ours_is_an_error_of_locks(one: Bench) -> None:
    one.plain.set(tagged("lock", "thing"), "theirs")
    actor, lock = one.actor(), one.make("Lock")
    for verb in (lock.acquire, lock.release, lock.state, lock.force_release):
        with pytest.raises(LockError, match=r"Redis refused a command of a lock, .* WRONGTYPE"):
            actor.do(verb)
    assert one.plain.get(tagged("lock", "thing")) == b"theirs"
