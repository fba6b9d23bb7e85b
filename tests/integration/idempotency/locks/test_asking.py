"""Who has permits, since when, for how long, and who waits: asked of the server, without an effect."""

import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench


def test_permits_name_who_has_them_and_who_waits(bench: Bench) -> None:
    semaphore = bench.make("Semaphore", permits=3)
    holder, waiter, other = bench.actors(3)
    assert other.do(semaphore.locked) is False
    assert other.do(semaphore.owner) is None
    assert other.do(semaphore.remaining_seconds) == 0.0
    for count, lease in ((1, 60), (2, 900)):
        assert holder.do(lambda count=count, lease=lease: semaphore.acquire(count, lease_seconds=lease))
    named = bench.make("Semaphore", permits=3, owner="order 18")
    waiting = waiter.begin(lambda: named.acquire(3))
    bench.waits(1, kind="semaphore")

    first, second = other.do(semaphore.state).owners
    lock = bench.make("Lock")
    assert holder.do(lock.acquire)
    assert first.name == second.name == other.do(lock.owner).name
    assert (first.holds, second.holds) == (1, 2)
    assert first.token < second.token
    assert other.do(semaphore.owner).token == first.token
    assert other.do(semaphore.state).waiters == ("named:order 18",)
    assert (other.do(semaphore.waiters), other.do(semaphore.locked)) == (1, True)
    assert (holder.do(semaphore.hold_count), other.do(semaphore.hold_count)) == (3, 0)
    assert 60 < other.do(semaphore.remaining_seconds) <= 900
    for _ in range(2):
        holder.do(semaphore.release)
    assert waiting.result(30) is True
    assert other.do(semaphore.owner).name == "named:order 18"
    assert (other.do(named.hold_count), other.do(lambda: named.held)) == (3, 3)
    other.do(named.release)  # a named owner, and what it holds, outlives this test


def test_an_expirable_permit_is_its_own_holder(bench: Bench) -> None:
    semaphore = bench.make("PermitExpirableSemaphore", permits=2)
    holder, waiter, other = bench.actors(3)
    assert other.do(semaphore.owner) is None
    permits = holder.do(lambda: semaphore.acquire_many(2, lease_seconds=60))
    waiting = waiter.begin(lambda: semaphore.acquire(lease_seconds=60))
    bench.waits(1, kind="permits")
    state = other.do(semaphore.state)
    assert {f"{each.name}@{each.token}" for each in state.owners} == set(permits)
    assert [each.holds for each in state.owners] == [1, 1]
    assert other.do(semaphore.locked) is True
    assert other.do(semaphore.waiters) == len(state.waiters) == 1
    holder.do(lambda: semaphore.release(*permits))
    assert waiting.result(30) == "{0.name}@{0.token}".format(other.do(semaphore.owner))


def test_permits_of_one_machine_name_who_has_them_and_who_waits(one: Bench, tmp_path: Path) -> None:
    ends: list[Any] = []
    make = partial(one.locks.HostSemaphore, "cpu", permits=2, folder=tmp_path)
    semaphore, named = make(on_released=lambda *end: ends.append(end)), make(owner="order 18")
    holder, other, waiter = one.actors(3)

    def counts() -> list[int]:
        return [other.do(getattr(semaphore, each)) for each in ("total", "acquired", "available", "waiters")]

    assert (counts(), other.do(semaphore.locked), other.do(semaphore.owner)) == ([2, 0, 2, 0], False, None)
    assert other.do(semaphore.remaining_seconds) == 0.0
    for taken in (1, 2):
        assert holder.do(semaphore.acquire)
        assert counts() == [2, taken, 2 - taken, 0]
    waiting = waiter.begin(named.acquire)
    until(lambda: other.do(semaphore.state).waiters == ("named:order 18",))
    lock = one.make("Lock")
    assert holder.do(lock.acquire)
    owner = other.do(semaphore.owner)
    assert (owner.name, owner.token, owner.holds) == (other.do(lock.owner).name, None, 1)
    assert abs(owner.since.timestamp() - time.time()) < 60
    assert other.do(semaphore.remaining_seconds) == math.inf
    assert (holder.do(semaphore.hold_count), other.do(semaphore.hold_count)) == (2, 0)
    holder.do(semaphore.release)
    assert (waiting.result(30), ends) == (True, [("cpu", 0)])
    until(lambda: counts() == [2, 2, 0, 0])
    assert other.do(named.hold_count) == 1
    other.do(named.release)
    holder.do(semaphore.release)
    assert (counts(), len(ends)) == ([2, 0, 2, 0], 2)
    with pytest.raises(TypeError, match="no on_lost"):
        make(on_lost=print)
