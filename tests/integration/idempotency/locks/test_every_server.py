"""Promises of each class: mutexes over every server, the others over Redis and its kin."""

import asyncio
import math
import os
import socket
import time
from typing import Any

import pytest

from idempotency.locks import LockLost, LockTimeout, NotHeld, UpgradeRefused
from idempotency.locks.engine import places
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench

OF_SESSIONS = [
    pytest.param("PostgreSQL", "threads", "", marks=pytest.mark.django_db(transaction=True)),
    pytest.param("PostgreSQL", "asyncio", "", marks=pytest.mark.django_db(transaction=True)),
    ("ZooKeeper", "threads", ""),
    ("ZooKeeper", "asyncio", ""),
]
OF_LEASES = [
    ("Redis", "threads", "FairLock"),
    ("Redis", "asyncio", "write"),
    ("Valkey", "asyncio", "FairLock"),
    ("Redis Cluster", "threads", "Lock"),
    ("Redis Cluster", "asyncio", "FairLock"),
    ("Sentinel", "threads", "write"),
    ("Sentinel", "asyncio", "Lock"),
]
every_mutex = pytest.mark.parametrize(("server", "face", "kind"), OF_LEASES + OF_SESSIONS)


@every_mutex
class TestMutex:
    def test_one_holder_who_may_come_in_again_and_alone_releases(self, mutexes: Any) -> None:
        lock, same, another = mutexes.make(), mutexes.make(), mutexes.make("柜台")
        first, second = mutexes.faced.actors(2)
        assert first.do(lock.acquire) is True
        assert first.do(same.acquire) is True
        token = first.do(lambda: lock.token)
        assert first.do(lambda: (same.held, same.lost, same.token)) == (True, False, token)
        assert second.do(lambda: (lock.held, lock.lost, lock.token)) == (False, False, None)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        assert second.do(lambda: another.acquire(wait_seconds=0)) is True
        second.do(another.release)
        with pytest.raises(NotHeld):
            second.do(lock.release)
        first.do(same.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        first.do(lock.release)
        with pytest.raises(NotHeld):
            first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
        assert second.do(lambda: lock.token) > token
        assert first.do(lambda: lock.token) is None
        second.do(lock.release)

    def test_waiters_are_next_in_the_order_of_arrival_and_the_server_knows_them(self, mutexes: Any) -> None:
        lock = mutexes.make()
        holder, *waiters, other = mutexes.faced.actors(4)
        questions = (lock.locked, lock.owner, lock.waiters, lock.remaining_seconds)
        assert [other.do(question) for question in questions] == [False, None, 0, 0.0]
        for _ in range(2):
            assert holder.do(lock.acquire)
        answers = []
        for count, waiter in enumerate(waiters, start=1):
            answers.append(waiter.begin(lock.acquire))
            mutexes.waits(lock, count)
        owner = other.do(lock.owner)
        assert owner.name.startswith(f"{socket.gethostname()}/{os.getpid()}/")
        assert (owner.token, owner.holds) == (holder.do(lambda: lock.token), 2)
        assert abs(owner.since.timestamp() - time.time()) < 60
        assert (owner.remaining_seconds <= 30) if mutexes.leases else owner.remaining_seconds == math.inf
        assert (holder.do(lock.hold_count), other.do(lock.hold_count)) == (2, 0)
        assert (other.do(lock.locked), len(other.do(lock.state).waiters)) == (True, 2)
        holder.do(lock.release)
        for leaver, answer in zip([holder, *waiters], answers, strict=False):
            assert not any(answer.done() for answer in answers[answers.index(answer) :])
            leaver.do(lock.release)
            assert answer.result(30) is True
        assert other.do(lock.owner).name != owner.name
        waiters[-1].do(lock.release)

    def test_a_wait_ends_with_its_time_or_by_another_thread_or_its_task_and_leaves_nothing(
        self, mutexes: Any
    ) -> None:
        lock, hurried = mutexes.make(), mutexes.make(wait_seconds=0.01)
        holder, waiter, other = mutexes.faced.actors(3)
        assert holder.do(lock.acquire)
        assert waiter.do(hurried.acquire) is False
        with pytest.raises(LockTimeout, match="was not free within"):
            waiter.do(mutexes.faced.within(hurried, lambda: pytest.fail("inside")))
        assert other.do(lock.waiters) == 0
        for _ in range(2):
            waiting = waiter.begin(lock.acquire)
            mutexes.waits(lock, 1)
            other.do(lock.cancel)
            assert waiting.result(30) is False
        if mutexes.faced.loop is not None:
            waiting = waiter.begin(lock.acquire)
            mutexes.waits(lock, 1)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                waiting.result(30)
        mutexes.waits(lock, 0)
        holder.do(lock.release)
        assert waiter.do(lambda: lock.acquire(wait_seconds=0)) is True
        waiter.do(lock.release)

    def test_an_owner_crosses_threads(self, mutexes: Any) -> None:
        lock, stranger = mutexes.make(owner="job 7"), mutexes.make(owner="job 8")
        first, second = mutexes.faced.actors(2)
        assert first.do(lock.acquire)
        assert second.do(lambda: lock.held) is True
        assert second.do(lambda: stranger.acquire(wait_seconds=0)) is False
        assert second.do(lock.owner).name == "named:job 7"
        second.do(lock.release)
        assert first.do(lambda: lock.held) is False

    def test_a_holder_that_ended_without_a_release_is_in_nobodys_way(
        self, mutexes: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(places, "LEASE_SECONDS", 0.5)  # and the watchdog renews it for the living alone
        lock = mutexes.make()
        gone, later = mutexes.faced.actors(2)
        assert gone.do(lock.acquire)
        mutexes.faced.end(gone)
        assert later.do(lambda: lock.acquire(wait_seconds=30)) is True
        later.do(lock.release)

    def test_a_hold_that_its_server_ended_is_lost_and_tokens_grow(self, mutexes: Any) -> None:
        lock, beside = mutexes.make(), mutexes.make(apart=True)
        first, second = mutexes.faced.actors(2)
        assert first.do(lock.acquire)
        token = first.do(lambda: lock.token)
        mutexes.lose(lock)
        assert second.do(lambda: beside.acquire(wait_seconds=30)) is True
        assert second.do(lambda: beside.token) > token
        with pytest.raises(LockLost):
            first.do(lock.release)
        assert first.do(lambda: (lock.held, lock.lost)) == (False, False)
        assert second.do(lambda: beside.held) is True
        second.do(beside.release)

    def test_a_loss_is_raised_by_with_unless_an_error_says_more_or_it_may_be_quiet(self, mutexes: Any) -> None:
        lock, quiet = mutexes.make(), mutexes.make(raise_on_lost=False)
        actor = mutexes.faced.actor()

        def fail() -> None:
            mutexes.lose(lock)
            raise ZeroDivisionError

        with pytest.raises(LockLost):
            actor.do(mutexes.faced.within(lock, lambda: mutexes.lose(lock)))
        with pytest.raises(ZeroDivisionError):
            actor.do(mutexes.faced.within(lock, fail))
        actor.do(mutexes.faced.within(quiet, lambda: mutexes.lose(quiet)))
        assert actor.do(lambda: (quiet.held, quiet.lost)) == (False, False)

    def test_a_holder_is_put_out_and_the_next_one_has_it(
        self, mutexes: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(places, "LEASE_SECONDS", 600.0)  # nothing but a message says so in time
        lock, beside = mutexes.make(), mutexes.make(apart=True)
        holder, waiter, other = mutexes.faced.actors(3)
        assert other.do(lock.force_release) is False
        assert holder.do(lock.acquire)
        token = holder.do(lambda: lock.token)
        waiting = waiter.begin(beside.acquire)
        mutexes.waits(lock, 1)
        assert other.do(lock.force_release) is True
        assert waiting.result(30) is True
        assert waiter.do(lambda: beside.token) > token
        if mutexes.hears_force:
            until(lambda: holder.do(lambda: lock.lost), "the holder hears it")
        with pytest.raises(LockLost):
            holder.do(lock.release)
        waiter.do(beside.release)

    def test_readers_share_and_a_writer_excludes_them(self, mutexes: Any) -> None:
        read, write = mutexes.readers_and_writers()
        first, second, writer, late = mutexes.faced.actors(4)
        assert first.do(read.acquire)
        assert second.do(lambda: read.acquire(wait_seconds=0))
        tokens = [reader.do(lambda: read.token) for reader in (first, second)]
        assert sorted(owner.token for owner in late.do(read.state).owners) == tokens
        assert (late.do(read.locked), first.do(read.hold_count), late.do(read.hold_count)) == (True, 1, 0)
        with pytest.raises(UpgradeRefused):
            first.do(lambda: write.acquire(wait_seconds=0))
        writing = writer.begin(write.acquire)
        mutexes.waits(write, 1)
        reading = late.begin(read.acquire)
        mutexes.waits(write, 2)  # a reader passes no writer
        first.do(read.release)
        assert not writing.done()
        second.do(read.release)
        assert writing.result(30) is True
        assert not reading.done()
        assert writer.do(read.acquire)  # a writer may
        writer.do(write.release)
        if mutexes.leases:  # and goes on reading
            assert writer.do(lambda: (write.held, read.held)) == (False, True)
            assert reading.result(30) is True
        else:
            assert first.do(lambda: read.acquire(wait_seconds=0)) is False
        writer.do(read.release)
        assert reading.result(30) is True
        late.do(read.release)


def test_a_latch_ends_its_waits_when_it_is_counted_down_or_deleted(bench: Bench) -> None:
    latch = bench.make("CountDownLatch")
    waiter, other = bench.actors(2)
    assert waiter.do(lambda: latch.wait(wait_seconds=0)) is True
    for end in (latch.count_down, latch.delete):
        assert other.do(latch.delete) is False
        assert other.do(lambda: latch.open(2)) is True
        assert other.do(lambda: latch.open(5)) is False
        assert waiter.do(lambda: latch.wait(wait_seconds=0)) is False
        waiting = waiter.begin(latch.wait)
        until(lambda: other.do(latch.waiters) == 1, "it waits")
        assert [other.do(latch.count_down), other.do(latch.count)] == [1, 1]
        assert not waiting.done()
        other.do(end)
        assert waiting.result(30) is True
        assert [other.do(ask) for ask in (latch.count, latch.count_down, latch.waiters)] == [0, 0, 0]


def test_a_member_is_new_once(bench: Bench) -> None:
    seen = bench.make("ExpiringSet", ttl_seconds=60)
    actor = bench.actor()
    assert [actor.do(lambda each=each: seen.add(each)) for each in ("a", "b", "a")] == [True, True, False]
    again: list[str] = []
    for each in ("c", "d", "d", "c"):  # not waited for, with the script unknown to the line and known
        actor.do(lambda each=each: seen.note(each, known=lambda: again.append(each)))
    assert [actor.do(lambda each=each: seen.add(each)) for each in ("c", "d")] == [False, False]
    assert again == ["d", "c"]
    short = bench.make("ExpiringSet", "short", ttl_seconds=0.01)
    assert actor.do(lambda: short.add("a")) is True
    until(lambda: actor.do(lambda: short.add("a")))
