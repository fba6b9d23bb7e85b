"""Leases made longer, holders put out, and waits ended by another thread."""

from functools import partial
from pathlib import Path

import pytest

from idempotency.locks import LockLost, NotHeld, RateExceeded
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench


@pytest.mark.parametrize("kind", ["read", "write", "permits"])
def test_a_holder_extends_all_leases_that_it_has(bench: Bench, kind: str) -> None:
    lock = bench.make("Semaphore", permits=3) if kind == "permits" else getattr(bench.make("ReadWriteLock"), kind)
    holder, other = bench.actors(2)

    def left() -> list[float]:
        return [owner.remaining_seconds for owner in other.do(lock.state).owners]

    with pytest.raises(NotHeld):
        holder.do(lambda: lock.extend(60))
    for lease in (20, 40):
        assert holder.do(lambda lease=lease: lock.acquire(lease_seconds=lease))
    with pytest.raises(NotHeld):
        other.do(lambda: lock.extend(60))
    holder.do(lambda: lock.extend(60))
    assert all(40 < seconds <= 60 for seconds in left())
    holder.do(lambda: lock.extend(1))  # never makes it shorter
    assert all(seconds > 40 for seconds in left())
    holder.do(lambda: lock.extend(600, add=True))
    assert all(640 < seconds <= 660 for seconds in left())
    with pytest.raises(ValueError, match="seconds"):
        holder.do(lambda: lock.extend(0))
    bench.forget()
    with pytest.raises(LockLost):
        holder.do(lambda: lock.extend(60))
    assert holder.do(lambda: lock.lost) is True


def test_readers_are_put_out_all_or_one_and_a_writer_that_reads_is_none(one: Bench) -> None:
    lock = one.make("ReadWriteLock")
    writer, *readers, other = one.actors(5)
    assert writer.do(lock.write.acquire)
    assert writer.do(lock.read.acquire)
    assert other.do(lock.read.force_release) is False
    assert other.do(lock.write.force_release) is True
    for reader in readers:
        assert reader.do(lock.read.acquire)
    first, *others = (reader.do(lambda: lock.read.token) for reader in readers)
    assert [other.do(lambda: lock.read.force_release(token=first)) for _ in range(2)] == [True, False]
    assert [owner.token for owner in other.do(lock.read.state).owners] == others
    assert other.do(lock.read.force_release) is True
    assert other.do(lambda: lock.write.acquire(wait_seconds=0)) is True


@pytest.mark.parametrize("kind", ["Semaphore", "PermitExpirableSemaphore", "HostSemaphore", "CountDownLatch"])
def test_a_wait_is_ended_by_another_thread(one: Bench, kind: str, tmp_path: Path) -> None:
    holder, *waiters, other = one.actors(4)
    lease = {"lease_seconds": 600} if kind == "PermitExpirableSemaphore" else {}
    if kind == "CountDownLatch":
        lock = one.make(kind)
        holder.do(lambda: lock.open(1))
        wait = lock.wait
    else:
        host = one.locks.HostSemaphore("cpu", folder=tmp_path, permits=1)
        lock = host if kind == "HostSemaphore" else one.make(kind, permits=1)
        holder.do(lambda: lock.acquire(**lease))
        wait = partial(lock.acquire, wait_seconds=None, **lease)
    waiting = [each.begin(wait) for each in waiters]
    until(lambda: len(lock._waits) == 2, "both wait")
    other.do(lock.cancel)
    for each in waiting:
        assert not each.result(30)
    assert lock._waits == set()
    assert not one.queue(kind=getattr(lock, "_kind", "lock"))


@pytest.mark.parametrize("kind", ["RateLimiter", "TokenBucket"])
def test_a_cancelled_wait_takes_its_own_permits_from_a_rate(one: Bench, kind: str) -> None:
    limit, mine = (one.make(kind, permits=2, interval_seconds=900) for _ in range(2))
    waiter, later, other = one.actors(3)
    other.do(lambda: limit.acquire(2, caller="first"))
    cancelled = waiter.begin(lambda: mine.acquire(2, caller="second", wait_seconds=None))
    until(lambda: mine._waits, "it waits")
    waiting = later.begin(lambda: limit.acquire(2, caller="third", wait_seconds=None))
    until(lambda: limit._waits, "it waits too")
    other.do(mine.cancel)
    with pytest.raises(RateExceeded) as exceeded:
        cancelled.result(30)
    assert 600 < exceeded.value.retry_after_seconds <= 900
    with pytest.raises(RateExceeded) as exceeded:
        other.do(limit.acquire)
    if kind == "RateLimiter":  # nobody gets the time of the later one as well
        assert exceeded.value.retry_after_seconds > 1800
    other.do(limit.cancel)
    with pytest.raises(RateExceeded):
        waiting.result(30)


def test_several_as_one(bench: Bench) -> None:
    both = bench.locks.MultiLock.of(["b", "a", "b"], client=bench.client, raise_on_lost=False)
    a, b = both.locks
    assert [a.name, b.name] == ["a", "b"]
    holder, other = bench.actors(2)
    assert other.do(b.acquire)
    assert holder.do(lambda: both.acquire(wait_seconds=0)) is False
    assert other.do(lambda: a.acquire(wait_seconds=0)) is True  # nothing was kept
    assert holder.do(both.locked) is True
    other.do(a.release)
    assert holder.do(both.locked) is False
    for end, answer in ((both.cancel, False), (b.release, True)):
        waiting = holder.begin(both.acquire)
        bench.waits(1, "b")
        other.do(end)
        assert waiting.result(30) is answer
    assert other.do(lambda: a.acquire(wait_seconds=0)) is False
    assert holder.do(b.acquire)
    assert (holder.do(both.hold_count), other.do(both.hold_count)) == (1, 0)
    assert other.do(both.owner).name == holder.do(a.owner).name
    assert 0 < other.do(both.remaining_seconds) <= 30
    holder.do(lambda: both.extend(90))
    assert other.do(both.remaining_seconds) > 60
    holder.do(lambda: both.extend(600, add=True))
    assert 660 < other.do(both.remaining_seconds) <= 690
    waiting = other.begin(both.acquire)
    bench.waits(1, "a")
    assert holder.do(both.waiters) == 1
    assert holder.do(both.force_release) is True
    assert waiting.result(30) is True
    with pytest.raises(LockLost):
        holder.do(lambda: both.extend(90))
    other.do(both.release)
    other.do(bench.within(both, bench.forget))  # which may be quiet about a loss
    assert other.do(lambda: both.lost) is False
