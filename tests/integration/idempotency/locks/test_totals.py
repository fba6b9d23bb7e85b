"""Semaphores whose total the server stores, and permits given back by the piece."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idempotency.locks import LockLost, NotHeld, Semaphore
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.processes import Pool, hands

SEMAPHORES = ["Semaphore", "PermitExpirableSemaphore"]


def _take(semaphore: Any, count: int, **how: float) -> Any:
    """As many at once, of either kind."""
    if hasattr(semaphore, "acquire_many"):
        return semaphore.acquire_many(count, lease_seconds=60, **how)
    return semaphore.acquire(count, **how)


def _asked(actor: Any, semaphore: Any) -> list[int]:
    """Total, permits that are out, and free ones."""
    names = ("total", "acquired", "available")
    return [actor.do(getattr(semaphore, name)) for name in names]


@pytest.mark.parametrize("kind", SEMAPHORES)
class TestTotals:
    def test_the_callers_number_counts_until_the_server_has_one(self, bench: Bench, kind: str) -> None:
        semaphore, without = bench.make(kind, permits=3), bench.make(kind)
        one, two = bench.actors(2)
        assert _asked(one, semaphore) == [3, 0, 3]
        assert _asked(one, without) == [0, 0, 0]
        assert one.do(lambda: _take(semaphore, 2))
        assert _asked(two, semaphore) == [3, 2, 1]
        assert two.do(lambda: semaphore.set_total(5, if_absent=True)) is True
        assert two.do(lambda: semaphore.set_total(9, if_absent=True)) is False
        assert _asked(one, semaphore) == _asked(one, without) == [5, 2, 3]
        assert two.do(lambda: _take(without, 4, wait_seconds=0)) in (False, [])
        assert two.do(lambda: _take(without, 3, wait_seconds=0))
        assert two.do(lambda: semaphore.set_total(None)) is True
        assert _asked(one, semaphore) == [3, 5, -2]

    def test_more_permits_wake_those_who_wait(self, bench: Bench, kind: str) -> None:
        semaphore = bench.make(kind)
        setter, *waiters = bench.actors(4)
        answers = []
        for count, waiter in enumerate(waiters, start=1):
            answers.append(waiter.begin(lambda: _take(semaphore, 2)))
            bench.waits(count, kind=semaphore._kind)
        assert setter.do(lambda: semaphore.set_total(2)) is True
        assert answers[0].result(30)
        assert setter.do(lambda: semaphore.add(4)) == 6
        assert all(answer.result(30) for answer in answers)
        assert _asked(setter, semaphore) == [6, 6, 0]


_numbers = itertools.count()
steps = st.tuples(
    st.sampled_from(["acquire", "release", "drain", "add", "reduce"]), st.sampled_from("ab"), st.integers(1, 4)
)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_any_order_of_verbs_does_what_a_number_and_lists_do(
    servers: Callable[[str], Any], verbs: list[Any]
) -> None:
    client = servers("Redis").client
    name = f"thing {next(_numbers)}"  # what an earlier example holds is held
    named = {owner: Semaphore(name, permits=5, owner=owner, wait_seconds=0, client=client) for owner in "ab"}
    total, held = 5, {owner: list[int]() for owner in named}
    for verb, owner, count in verbs:
        semaphore, mine = named[owner], held[owner]
        free = total - sum(map(sum, held.values()))
        if verb == "acquire":
            assert semaphore.acquire(count) is (count <= free)
            mine += [count] if count <= free else []
        elif verb == "drain":
            assert semaphore.drain() == max(free, 0)
            mine += [free] if free > 0 else []
        elif verb in {"add", "reduce"}:
            total += count if verb == "add" else -count
            assert getattr(semaphore, verb)(count) == total
        elif count > sum(mine):
            with pytest.raises(NotHeld):
                semaphore.release(count)
        else:
            semaphore.release(count)
            mine[:] = [sum(mine) - count]
        assert {each: named[each].held for each in named} == {each: sum(held[each]) for each in held}
        assert semaphore.available() == total - sum(map(sum, held.values()))


class TestPiecewise:
    def test_permits_go_back_by_the_piece_the_newest_first(self, bench: Bench) -> None:
        ended: list[int] = []
        semaphore = bench.make("Semaphore", permits=6, on_released=lambda _, token: ended.append(token))
        one, two = bench.actors(2)
        for count in (3, 2):
            assert one.do(lambda count=count: semaphore.acquire(count))
        one.do(lambda: semaphore.release(1))
        assert one.do(lambda: semaphore.held) == two.do(semaphore.acquired) == 4
        waiting = two.begin(lambda: semaphore.acquire(4))
        bench.waits(1, kind="semaphore")
        assert one.do(semaphore.drain) == 0  # it passes nobody
        one.do(lambda: semaphore.release(2))
        assert waiting.result(30) is True
        assert one.do(lambda: semaphore.held) == 2
        with pytest.raises(NotHeld, match="is not held"):
            one.do(lambda: semaphore.release(3))
        with pytest.raises(ValueError, match="permits must be a whole number"):
            one.do(lambda: semaphore.release(0))
        assert len(ended) == 1
        one.do(semaphore.release)
        assert (one.do(lambda: semaphore.held), two.do(semaphore.acquired), len(ended)) == (0, 4, 2)
        bench.forget()
        with pytest.raises(LockLost):  # a part of what the server forgot
            two.do(lambda: semaphore.release(2))
        assert two.do(lambda: semaphore.held) == 0

    def test_an_owners_permits_are_released_by_another_process(self, one: Bench, pool: Pool) -> None:
        url, name, actor = one.servers.url, "", one.actor()
        owned = {}
        for owner in ("order 17", "order 1", "order 2"):
            name, owned[owner] = hands(pool(2), url, "Semaphore", name, permits=4, owner=owner)
        (first, _), (_, other), (_, waiter) = owned.values()
        for count in (1, 2):
            assert first.do(f"lock.acquire({count})")
        assert other.do("lock.acquire()")
        waiter.begin("lock.acquire(2)")
        one.waits(1, name, kind="semaphore")
        semaphore = one.make("Semaphore", name, permits=4, owner="order 17")
        with pytest.raises(NotHeld):
            actor.do(lambda: semaphore.release(4))
        actor.do(semaphore.release)
        assert waiter.answer() is True
        actor.do(lambda: semaphore.release(1))
        with pytest.raises(NotHeld):
            actor.do(semaphore.release)
        waited = one.make("Semaphore", name, permits=4, owner="order 2")
        for left in (2, 1):  # of an owner who waited for them
            actor.do(lambda: waited.release(1))
            assert actor.do(waited.acquired) == left
        for _ in range(2):
            with pytest.raises(LockLost):
                first.do("lock.release()")
        other.do("lock.release()")

    def test_several_expirable_permits_all_or_none(self, bench: Bench) -> None:
        semaphore = bench.make("PermitExpirableSemaphore", permits=4)
        one, two = bench.actors(2)
        names = one.do(lambda: semaphore.acquire_many(3, lease_seconds=60))
        assert len(set(names)) == 3
        assert two.do(lambda: semaphore.acquire_many(2, lease_seconds=60, wait_seconds=0)) == []
        assert two.do(semaphore.acquired) == 3
        waiting = two.begin(lambda: semaphore.acquire_many(3, lease_seconds=60))
        bench.waits(1, kind="permits")
        one.do(lambda: semaphore.release(names[1]))
        with pytest.raises(NotHeld):
            one.do(lambda: semaphore.release(names[1]))
        one.do(lambda: semaphore.prolong(names[2], lease_seconds=90))
        with pytest.raises(NotHeld):  # and those that are held go back
            one.do(lambda: semaphore.release(*names))
        later = waiting.result(30)
        assert len(set(later)) == 3
        assert one.do(semaphore.acquired) == 3
        for name in later:
            one.do(lambda name=name: semaphore.release(name))
        assert _asked(one, semaphore) == [4, 0, 4]

    def test_expirable_permits_end_and_anyone_gives_them_back(self, bench: Bench) -> None:
        semaphore = bench.make("PermitExpirableSemaphore", permits=1)
        one, two = bench.actors(2)
        first = one.do(lambda: semaphore.acquire(lease_seconds=0.05))
        second = two.do(lambda: semaphore.acquire(lease_seconds=60, wait_seconds=20))
        assert second not in {None, first}
        two.do(lambda: semaphore.prolong(second, lease_seconds=90))
        assert one.do(lambda: semaphore.acquire(lease_seconds=1, wait_seconds=0)) is None
        waiting = two.begin(lambda: semaphore.acquire(lease_seconds=60))
        bench.waits(1, kind="permits")
        one.do(lambda: semaphore.release(second))
        third = waiting.result(30)
        owner, _, token = third.rpartition("@")
        for useless in (first, second, f"{owner}@{int(token) + 1}"):
            with pytest.raises(NotHeld):
                two.do(lambda useless=useless: semaphore.release(useless))
            with pytest.raises(NotHeld):
                two.do(lambda useless=useless: semaphore.prolong(useless, lease_seconds=9))
        two.do(lambda: semaphore.release(third))

    def test_how_long_a_permit_lasts_is_one_command(self, one: Bench) -> None:
        semaphore, actor = one.make("PermitExpirableSemaphore", permits=4), one.actor()
        permits = [actor.do(lambda lease=lease: semaphore.acquire(lease_seconds=lease)) for lease in (900, 600)]
        permits += actor.do(lambda: semaphore.acquire_many(2, lease_seconds=300))
        left: list[float] = []

        def ask() -> None:
            left[:] = [actor.do(lambda each=each: semaphore.remaining_seconds(each)) for each in permits]

        ask()
        assert one.commands(ask) == {"evalsha": 4}
        limits = [(600, 900), (300, 600), (0, 300), (0, 300)]
        assert all(low < each <= high for each, (low, high) in zip(left, limits, strict=True))
        actor.do(lambda: semaphore.release(permits[1]))
        assert actor.do(lambda: semaphore.remaining_seconds(permits[1])) == 0.0
        assert one.commands(lambda: actor.do(lambda: semaphore.release(*permits[2:]))) == {"evalsha": 1}
