"""Who has permits, since when, for how long, and who waits: asked of the server, without an effect."""

from pathlib import Path

import pytest

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


QUESTIONS = ["state", "locked", "owner", "waiters"]


@pytest.mark.parametrize(
    ("kind", "questions"),
    [
        ("Lock", [*QUESTIONS, "remaining_seconds", "hold_count"]),
        ("Semaphore", [*QUESTIONS, "remaining_seconds", "hold_count", "total", "acquired", "available"]),
        ("PermitExpirableSemaphore", [*QUESTIONS, "total", "acquired", "available"]),
        ("CountDownLatch", ["count", "waiters"]),
        ("RateLimiter", ["rate", "available"]),
        ("TokenBucket", ["rate", "available"]),
    ],
)
def test_a_question_is_one_command(one: Bench, kind: str, questions: list[str]) -> None:
    asked, actor = one.make(kind), one.actor()
    for question in questions:
        actor.do(getattr(asked, question))
    counts = {each: one.commands(lambda each=each: actor.do(getattr(asked, each))) for each in questions}
    assert counts == {each: {"evalsha": 1} for each in questions}


def test_permits_of_one_machine_are_counted(one: Bench, tmp_path: Path) -> None:
    semaphore = one.locks.HostSemaphore("cpu", permits=3, folder=tmp_path)
    holder, other = one.actors(2)

    def counts() -> list[int]:
        return [other.do(getattr(semaphore, each)) for each in ("total", "acquired", "available")]

    assert counts() == [3, 0, 3]
    for taken in range(1, 4):
        assert holder.do(semaphore.acquire)
        assert counts() == [3, taken, 3 - taken]
    for _ in range(3):
        holder.do(semaphore.release)
    assert counts() == [3, 0, 3]
