"""A lock's lease made longer, its holder put out, and a wait ended by another thread."""

from typing import Any

import pytest

from idempotency.locks import LockLost, LockTimeout, NotHeld
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


def test_several_are_extended_and_put_out_as_one(one: Bench) -> None:
    both = one.locks.MultiLock.of(["a", "b"], client=one.client)
    holder, other = one.actors(2)
    assert holder.do(both.acquire)
    holder.do(lambda: both.extend(90))
    assert other.do(both.remaining_seconds) > 60
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
