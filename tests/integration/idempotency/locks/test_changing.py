"""A lock's lease made longer, its holder put out, and a wait ended by another thread."""

from pathlib import Path
from typing import Any

import pytest

from idempotency.locks import LockLost, LockTimeout, NotHeld, RateExceeded
from idempotency.locks.engine import places
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.test_asking import SIDES


@pytest.mark.parametrize("side", SIDES)
def test_a_holder_extends_its_lease(bench: Bench, side: str) -> None:
    lock = SIDES[side](bench)
    holder, other = bench.actors(2)
    with pytest.raises(NotHeld):
        holder.do(lambda: lock.extend(60))
    assert holder.do(lambda: lock.acquire(lease_seconds=20))
    with pytest.raises(NotHeld):
        other.do(lambda: lock.extend(60))
    holder.do(lambda: lock.extend(60))
    assert 20 < other.do(lock.remaining_seconds) <= 60
    holder.do(lambda: lock.extend(1))  # never makes it shorter
    assert other.do(lock.remaining_seconds) > 20
    holder.do(lambda: lock.extend(600, add=True))
    assert 620 < other.do(lock.remaining_seconds) <= 660
    with pytest.raises(ValueError, match="seconds"):
        holder.do(lambda: lock.extend(0))
    bench.forget()
    with pytest.raises(LockLost):
        holder.do(lambda: lock.extend(60))
    assert holder.do(lambda: lock.lost) is True


@pytest.mark.parametrize("lease", [{}, {"lease_seconds": 900.0}], ids=["watchdog", "own lease"])
@pytest.mark.parametrize("side", SIDES)
def test_a_holder_is_put_out_and_hears_it(
    bench: Bench, side: str, lease: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 600.0)  # nothing but the message says so in time
    lock = SIDES[side](bench)
    holder, waiter, other = bench.actors(3)
    assert other.do(lock.force_release) is False
    for _ in range(2):
        assert holder.do(lambda: lock.acquire(**lease))
    token = holder.do(lambda: lock.token)
    kind, next_one = ("readwrite", bench.make("ReadWriteLock").write) if side == "read" else (lock._kind, lock)
    waiting = waiter.begin(next_one.acquire)
    bench.waits(1, kind=kind)
    assert other.do(lambda: lock.force_release(token=token + 1)) is False
    assert other.do(lambda: lock.force_release(token=token)) is True
    assert waiting.result(30) is True
    assert waiter.do(lambda: next_one.token) > token
    until(lambda: holder.do(lambda: lock.lost), "the holder hears it")
    with pytest.raises(LockLost):
        holder.do(lock.release)
    assert waiter.do(lambda: next_one.held) is True
    assert other.do(next_one.force_release) is True


def test_a_writer_that_reads_is_no_reader_to_put_out(one: Bench) -> None:
    lock = one.make("ReadWriteLock")
    holder, other = one.actors(2)
    assert holder.do(lock.write.acquire)
    assert holder.do(lock.read.acquire)
    assert other.do(lock.read.force_release) is False
    assert other.do(lock.write.force_release) is True
    assert other.do(lambda: lock.write.acquire(wait_seconds=0)) is True


def test_every_reader_is_put_out(one: Bench) -> None:
    lock = one.make("ReadWriteLock")
    *readers, other = one.actors(3)
    for reader in readers:
        assert reader.do(lock.read.acquire)
    assert other.do(lock.read.force_release) is True
    assert other.do(lambda: lock.write.acquire(wait_seconds=0)) is True


@pytest.mark.parametrize("several", [False, True])
def test_a_wait_is_ended_by_another_thread(one: Bench, several: bool) -> None:
    taken = one.make("Lock")
    lock = one.locks.MultiLock([taken, one.make("Lock", "zebra")]) if several else taken
    holder, waiter, other = one.actors(3)
    assert holder.do(taken.acquire)
    waiting = waiter.begin(lock.acquire)
    one.waits(1)
    other.do(lock.cancel)
    assert waiting.result(30) is False
    assert one.queue() == 0
    entering = waiter.begin(lock.enter)
    one.waits(1)
    other.do(lock.cancel)
    with pytest.raises(LockTimeout):
        entering.result(30)
    holder.do(taken.release)
    assert waiter.do(lock.acquire) is True


SETTINGS: dict[str, Any] = {
    "CountDownLatch": {},
    "RateLimiter": {"permits": 1, "interval_seconds": 900},
    "TokenBucket": {"permits": 1, "interval_seconds": 900},
}
WAITS: dict[str, Any] = {
    "Semaphore": lambda lock: (lock.acquire, lock.acquire, False),
    "PermitExpirableSemaphore": lambda lock: (
        lambda: lock.acquire(lease_seconds=600),
        lambda: lock.acquire(lease_seconds=600),
        None,
    ),
    "HostSemaphore": lambda lock: (lock.acquire, lock.acquire, False),
    "CountDownLatch": lambda latch: (lambda: latch.open(1), latch.wait, False),
    "RateLimiter": lambda limit: (limit.acquire, lambda: limit.acquire(wait_seconds=None), None),
    "TokenBucket": lambda limit: (limit.acquire, lambda: limit.acquire(wait_seconds=None), None),
}


@pytest.mark.parametrize("kind", WAITS)
def test_so_is_that_for_any_other_kind(one: Bench, kind: str, tmp_path: Path) -> None:
    if kind == "HostSemaphore":
        lock = one.locks.HostSemaphore("cpu", permits=1, folder=tmp_path)
    else:
        lock = one.make(kind, **SETTINGS.get(kind, {"permits": 1}))
    holder, waiter, *others, other = one.actors(4)
    take, wait, nothing = WAITS[kind](lock)
    holder.do(take)
    waiting = [each.begin(wait) for each in (waiter, *others)]
    until(lambda: len(lock._waits) == 2, "both wait")
    other.do(lock.cancel)
    for each in waiting:
        if kind in {"RateLimiter", "TokenBucket"}:
            with pytest.raises(RateExceeded) as exceeded:
                each.result(30)
            assert 600 < exceeded.value.retry_after_seconds <= 1800
        else:
            assert each.result(30) is nothing
    assert lock._waits == set()
    assert not one.queue(kind=getattr(lock, "_kind", "lock"))


@pytest.mark.parametrize("kind", ["RateLimiter", "TokenBucket"])
def test_a_cancelled_wait_takes_its_own_permits_from_a_rate(one: Bench, kind: str) -> None:
    limit = one.make(kind, permits=2, interval_seconds=900)
    first, second, third, other = one.actors(4)
    first.do(lambda: limit.acquire(2, caller="first"))
    mine = one.make(kind, permits=2, interval_seconds=900)
    cancelled = second.begin(lambda: mine.acquire(2, caller="second", wait_seconds=None))
    until(lambda: mine._waits, "it waits")
    later = third.begin(lambda: limit.acquire(2, caller="third", wait_seconds=None))
    until(lambda: limit._waits, "it waits too")
    assert not later.done()
    other.do(mine.cancel)
    with pytest.raises(RateExceeded):
        cancelled.result(30)
    with pytest.raises(RateExceeded) as exceeded:
        other.do(lambda: limit.acquire(1))
    other.do(limit.cancel)
    with pytest.raises(RateExceeded):
        later.result(30)
    if kind == "RateLimiter":  # nobody gets the time of the later one as well
        assert exceeded.value.retry_after_seconds > 1800


@pytest.mark.parametrize("kind", ["Semaphore", "PermitExpirableSemaphore"])
def test_permits_are_taken_by_force(bench: Bench, kind: str) -> None:
    semaphore = bench.make(kind, permits=3)
    expirable = kind != "Semaphore"
    lease = {"lease_seconds": 600} if expirable else {}
    holder, waiter, other = bench.actors(3)
    assert other.do(semaphore.force_release) is False
    taken = [holder.do(lambda: semaphore.acquire(**lease)) for _ in range(2)]
    tokens = [owner.token for owner in other.do(semaphore.state).owners]
    take = (lambda: semaphore.acquire_many(2, **lease)) if expirable else (lambda: semaphore.acquire(2))
    waiting = waiter.begin(take)
    bench.waits(1, kind=semaphore._kind)
    assert other.do(lambda: semaphore.force_release(token=tokens[0])) is True
    assert waiting.result(30)
    assert other.do(semaphore.acquired) == 3
    assert other.do(semaphore.force_release) is True
    assert other.do(semaphore.available) == 3
    for permit in reversed(taken):
        with pytest.raises(NotHeld):
            holder.do(lambda permit=permit: semaphore.release(*[permit] if expirable else []))


def test_permits_are_extended_all_of_them(bench: Bench) -> None:
    semaphore = bench.make("Semaphore", permits=3)
    holder, other = bench.actors(2)
    with pytest.raises(NotHeld):
        holder.do(lambda: semaphore.extend(60))
    for lease in (20, 40):
        assert holder.do(lambda lease=lease: semaphore.acquire(lease_seconds=lease))
    holder.do(lambda: semaphore.extend(60))
    assert all(40 < owner.remaining_seconds <= 60 for owner in other.do(semaphore.state).owners)
    holder.do(lambda: semaphore.extend(600, add=True))
    assert all(640 < owner.remaining_seconds <= 660 for owner in other.do(semaphore.state).owners)
    bench.forget()
    with pytest.raises(LockLost):
        holder.do(lambda: semaphore.extend(60))


def test_several_are_extended_and_put_out_as_one(one: Bench) -> None:
    both = one.locks.MultiLock.of(["a", "b"], client=one.client)
    holder, other = one.actors(2)
    assert holder.do(both.acquire)
    holder.do(lambda: both.extend(90))
    assert other.do(both.remaining_seconds) > 60
    holder.do(lambda: both.extend(600, add=True))
    assert 660 < other.do(both.remaining_seconds) <= 690
    assert other.do(both.force_release) is True
    assert other.do(lambda: both.acquire(wait_seconds=0)) is True
    with pytest.raises(LockLost):
        holder.do(lambda: both.extend(90))


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("kind", ["Lock", "MultiLock", "RedLock"])
def test_the_end_of_with_may_be_quiet_about_a_loss(one: Bench, kind: str, raises: bool) -> None:
    lock = {
        "Lock": lambda: one.make("Lock", raise_on_lost=raises),
        "MultiLock": lambda: one.locks.MultiLock([one.make("Lock")], raise_on_lost=raises),
        "RedLock": lambda: one.locks.RedLock("a", clients=[one.client] * 3, raise_on_lost=raises),
    }[kind]()
    actor = one.actor()

    def block() -> Any:
        if one.loop is None:
            with lock:
                one.forget()
            return None
        return _block()

    async def _block() -> None:
        async with lock:
            one.forget()

    if raises:
        with pytest.raises(LockLost):
            actor.do(block)
    else:
        actor.do(block)
    assert actor.do(lambda: lock.lost) is False
