"""Who holds a lock, since when, for how long, and who waits: asked of the server, without an effect."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.idempotency.locks import test_faults
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench

SIDES: dict[str, Any] = {
    "Lock": lambda bench: bench.make("Lock"),
    "FairLock": lambda bench: bench.make("FairLock"),
    "read": lambda bench: bench.make("ReadWriteLock").read,
    "write": lambda bench: bench.make("ReadWriteLock").write,
}


@pytest.mark.parametrize("side", SIDES)
def test_the_server_names_holder_lease_and_queue(bench: Bench, side: str) -> None:
    lock = SIDES[side](bench)
    holder, waiter, other = bench.actors(3)
    assert other.do(lock.locked) is False
    assert other.do(lock.owner) is None
    assert other.do(lock.remaining_seconds) == 0.0
    assert holder.do(lambda: lock.acquire(lease_seconds=60))
    assert holder.do(lambda: lock.acquire(lease_seconds=60))
    kind, blocked = ("readwrite", bench.make("ReadWriteLock").write) if side == "read" else (lock._kind, lock)
    waiting = waiter.begin(blocked.acquire)
    bench.waits(1, kind=kind)

    owner = other.do(lock.owner)
    assert owner.name.startswith(f"{socket.gethostname()}/{os.getpid()}/")
    assert owner.token == holder.do(lambda: lock.token)
    assert abs(owner.since.timestamp() - time.time()) < 60
    assert 0 < owner.remaining_seconds <= 60
    assert owner.holds == holder.do(lock.hold_count) == 2
    assert other.do(lock.hold_count) == 0
    assert other.do(lock.locked) is True
    assert 0 < other.do(lock.remaining_seconds) <= 60
    assert other.do(blocked.waiters) == 1
    assert len(other.do(blocked.state).waiters) == 1

    holder.do(lock.release)
    holder.do(lock.release)
    assert waiting.result(30) is True
    assert other.do(blocked.waiters) == 0
    assert other.do(blocked.owner).name != owner.name
    assert f"{kind}:{{thing}}" in repr(lock)


def test_each_side_counts_its_own(one: Bench) -> None:
    lock = one.make("ReadWriteLock")
    readers = one.actors(2)
    for reader in readers:
        assert reader.do(lock.read.acquire)
    state = readers[0].do(lock.read.state)
    assert [owner.token for owner in state.owners] == [each.do(lambda: lock.read.token) for each in readers]
    assert readers[0].do(lock.write.locked) is False


@pytest.mark.parametrize("question", ["state", "locked", "owner", "remaining_seconds", "hold_count", "waiters"])
def test_a_question_is_one_command(one: Bench, question: str) -> None:
    lock, actor = one.make("Lock"), one.actor()
    actor.do(getattr(lock, question))
    with one.servers.data_nodes() as (server,):
        server.config_resetstat()
        actor.do(getattr(lock, question))
        assert server.info("commandstats")["cmdstat_evalsha"]["calls"] == 1


@pytest.mark.parametrize("owner", [None, "order 17"])
def test_permits_name_who_has_them_and_who_waits(bench: Bench, owner: str | None) -> None:
    semaphore = bench.make("Semaphore", permits=3, owner=owner)
    holder, waiter, other = bench.actors(3)
    assert other.do(semaphore.locked) is False
    assert other.do(semaphore.owner) is None
    assert other.do(semaphore.remaining_seconds) == 0.0
    for count, lease in ((1, 60), (2, 900)):
        assert holder.do(lambda count=count, lease=lease: semaphore.acquire(count, lease_seconds=lease))
    next_one = bench.make("Semaphore", permits=3, owner="order 18")
    waiting = waiter.begin(lambda: next_one.acquire(3))
    bench.waits(1, kind="semaphore")

    state = other.do(semaphore.state)
    lock = bench.make("Lock", owner=owner)
    assert holder.do(lock.acquire)
    name = other.do(lock.owner).name
    holder.do(lock.release)  # a named owner, and what it holds, outlives this test
    assert [(each.name, each.holds) for each in state.owners] == [(name, 1), (name, 2)]
    assert state.owners[0].token < state.owners[1].token
    assert other.do(semaphore.owner).token == state.owners[0].token
    assert state.waiters == ("named:order 18",)
    assert other.do(semaphore.waiters) == 1
    assert other.do(semaphore.locked) is True
    assert holder.do(semaphore.hold_count) == 3
    assert other.do(bench.make("Semaphore", permits=3).hold_count) == 0
    assert 60 < other.do(semaphore.remaining_seconds) <= 900
    for _ in range(2):
        holder.do(semaphore.release)
    assert waiting.result(30) is True
    assert other.do(semaphore.owner).name == "named:order 18"


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


QUESTIONS = ["state", "locked", "owner", "waiters"]


@pytest.mark.parametrize(
    ("kind", "questions"),
    [
        ("Semaphore", [*QUESTIONS, "remaining_seconds", "hold_count", "total", "acquired", "available"]),
        ("PermitExpirableSemaphore", [*QUESTIONS, "total", "acquired", "available"]),
        ("CountDownLatch", ["count", "waiters"]),
        ("RateLimiter", ["rate", "available"]),
        ("TokenBucket", ["rate", "available"]),
    ],
)
def test_a_question_to_any_other_kind_is_one_command(one: Bench, kind: str, questions: list[str]) -> None:
    asked, actor = one.make(kind), one.actor()
    for question in questions:
        actor.do(getattr(asked, question))
    costs = test_faults.TestCosts()
    counts = {each: costs.commands(one, lambda each=each: actor.do(getattr(asked, each))) for each in questions}
    assert counts == {each: {"evalsha": 1} for each in questions}


def test_a_latch_counts_who_waits(bench: Bench) -> None:
    latch = bench.make("CountDownLatch")
    *waiters, other = bench.actors(3)
    assert other.do(latch.waiters) == 0
    assert other.do(lambda: latch.open(1))
    waiting = [each.begin(latch.wait) for each in waiters]
    until(lambda: other.do(latch.waiters) == 2, "two wait")
    other.do(latch.count_down)
    assert [each.result(30) for each in waiting] == [True, True]
    assert other.do(latch.waiters) == 0


def test_permits_of_one_machine_are_counted(one: Bench, tmp_path: Path) -> None:
    semaphore = one.locks.HostSemaphore("cpu", permits=3, folder=tmp_path)
    holder, other = one.actors(2)

    def counts() -> list[int]:
        return [other.do(getattr(semaphore, each)) for each in ("total", "acquired", "available")]

    assert counts() == [3, 0, 3]
    assert all(holder.do(semaphore.acquire) for _ in range(2))
    assert counts() == [3, 2, 1]
    assert holder.do(semaphore.acquire)
    assert counts() == [3, 3, 0]
    for _ in range(3):
        holder.do(semaphore.release)
    assert counts() == [3, 0, 3]


def test_several_are_held_by_the_one_that_has_them_all(one: Bench) -> None:
    both = one.locks.MultiLock.of(["a", "b"], client=one.client)
    holder, other = one.actors(2)
    assert other.do(one.make("Lock", "a").acquire)
    assert holder.do(both.locked) is False
    other.do(one.make("Lock", "a").release)
    assert holder.do(both.acquire)
    assert holder.do(one.make("Lock", "b").acquire)
    assert (holder.do(both.hold_count), other.do(both.hold_count)) == (1, 0)
    assert other.do(both.owner).name == holder.do(one.make("Lock", "a").owner).name
    assert 0 < other.do(both.remaining_seconds) <= 30
    waiting = other.begin(both.acquire)
    one.waits(1, "a")
    assert holder.do(both.waiters) == 1
    holder.do(both.release)
    holder.do(one.make("Lock", "b").release)
    assert waiting.result(30) is True
