"""Semaphores: how many permits there are, who has them, and how they come back."""

import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idempotency.locks import LockLost, NotHeld, Semaphore
from idempotency.locks.engine import places
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.processes import Pool, hands

every_kind = pytest.mark.parametrize("kind", ["Semaphore", "PermitExpirableSemaphore"])


def _take(semaphore: Any, count: int, **how: float) -> Any:
    """As many at once, of either kind."""
    if hasattr(semaphore, "acquire_many"):
        return semaphore.acquire_many(count, lease_seconds=600, **how)
    return semaphore.acquire(count, **how)


def _numbers(actor: Any, semaphore: Any) -> list[int]:
    """Total, permits that are out, and free ones."""
    return [actor.do(getattr(semaphore, name)) for name in ("total", "acquired", "available")]


@every_kind
def test_the_callers_number_counts_until_the_server_has_one(bench: Bench, kind: str) -> None:
    semaphore, without = bench.make(kind, permits=3), bench.make(kind)
    one, two, *waiters = bench.actors(5)
    assert (_numbers(one, semaphore), _numbers(one, without)) == ([3, 0, 3], [0, 0, 0])
    assert one.do(lambda: _take(semaphore, 2))
    assert two.do(lambda: semaphore.set_total(5, if_absent=True)) is True
    assert two.do(lambda: semaphore.set_total(9, if_absent=True)) is False
    assert _numbers(one, semaphore) == _numbers(one, without) == [5, 2, 3]
    assert two.do(lambda: _take(without, 4, wait_seconds=0)) in (False, [])
    assert two.do(lambda: _take(without, 3, wait_seconds=0))
    assert two.do(lambda: semaphore.set_total(None)) is True
    assert _numbers(one, semaphore) == [3, 5, -2]
    answers = []
    for count, waiter in enumerate(waiters, start=1):
        answers.append(waiter.begin(lambda: _take(semaphore, 2)))
        bench.waits(count, kind=semaphore._kind)
    assert two.do(lambda: semaphore.set_total(7)) is True  # more permits wake those who wait
    assert answers[0].result(30)
    assert two.do(lambda: semaphore.add(4)) == 11
    assert all(answer.result(30) for answer in answers)
    assert _numbers(one, semaphore) == [11, 11, 0]


_names = itertools.count()
steps = st.tuples(
    st.sampled_from(["acquire", "release", "drain", "add", "reduce"]), st.sampled_from("ab"), st.integers(1, 4)
)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_any_order_of_verbs_does_what_a_number_and_lists_do(
    servers: Callable[[str], Any], verbs: list[Any]
) -> None:
    client = servers("Redis").client
    name = f"thing {next(_names)}"  # what an earlier example holds is held
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


def test_permits_name_their_holder_and_go_back_by_the_piece_the_newest_first(bench: Bench) -> None:
    ended: list[int] = []
    semaphore = bench.make("Semaphore", permits=6, on_released=lambda _, token: ended.append(token))
    named, lock = bench.make("Semaphore", permits=6, owner="order 18"), bench.make("Lock")
    holder, waiter, other = bench.actors(3)
    free = [other.do(ask) for ask in (semaphore.locked, semaphore.owner, semaphore.remaining_seconds)]
    assert free == [False, None, 0.0]
    for count, lease in ((3, 60), (2, 900)):
        assert holder.do(lambda count=count, lease=lease: semaphore.acquire(count, lease_seconds=lease))
    holder.do(lambda: semaphore.release(1))
    waiting = waiter.begin(lambda: named.acquire(4))
    bench.waits(1, kind="semaphore")
    assert holder.do(semaphore.drain) == 0  # it passes nobody

    first, second = other.do(semaphore.state).owners
    assert holder.do(lock.acquire)
    assert first.name == second.name == other.do(lock.owner).name
    assert (first.holds, second.holds, first.token < second.token) == (3, 1, True)
    assert other.do(semaphore.owner).token == first.token
    assert other.do(semaphore.state).waiters == ("named:order 18",)
    assert [other.do(ask) for ask in (semaphore.locked, semaphore.waiters, semaphore.acquired)] == [True, 1, 4]
    assert 60 < other.do(semaphore.remaining_seconds) <= 900
    assert holder.do(semaphore.hold_count) == holder.do(lambda: semaphore.held) == 4
    assert other.do(semaphore.hold_count) == 0

    holder.do(lambda: semaphore.release(2))
    assert waiting.result(30) is True
    assert other.do(named.hold_count) == other.do(lambda: named.held) == 4
    with pytest.raises(NotHeld, match="is not held"):
        holder.do(lambda: semaphore.release(3))
    with pytest.raises(ValueError, match="permits must be a whole number"):
        holder.do(lambda: semaphore.release(0))
    assert ended == [second.token]
    holder.do(semaphore.release)
    assert (holder.do(lambda: semaphore.held), other.do(semaphore.acquired)) == (0, 4)
    assert ended == [second.token, first.token]
    assert holder.do(lambda: semaphore.acquire(2))
    bench.forget()
    with pytest.raises(LockLost):  # a part of what the server forgot
        holder.do(lambda: semaphore.release(1))
    assert holder.do(lambda: semaphore.held) == 0


def test_an_owners_permits_are_released_by_another_process(one: Bench, pool: Pool) -> None:
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


def test_several_expirable_permits_are_had_all_or_none_each_its_own_holder(bench: Bench) -> None:
    semaphore = bench.make("PermitExpirableSemaphore", permits=4)
    one, two = bench.actors(2)

    def owners() -> set[str]:
        found = one.do(semaphore.state).owners
        assert [each.holds for each in found] == [1] * len(found)
        return {f"{each.name}@{each.token}" for each in found}

    assert one.do(semaphore.owner) is None
    names = one.do(lambda: semaphore.acquire_many(3, lease_seconds=60))
    assert two.do(lambda: semaphore.acquire_many(2, lease_seconds=60, wait_seconds=0)) == []
    waiting = two.begin(lambda: semaphore.acquire_many(3, lease_seconds=60))
    bench.waits(1, kind="permits")
    assert owners() == {*names}
    assert [one.do(ask) for ask in (semaphore.locked, semaphore.waiters, semaphore.acquired)] == [True, 1, 3]
    one.do(lambda: semaphore.release(names[1]))
    with pytest.raises(NotHeld):
        one.do(lambda: semaphore.release(names[1]))
    one.do(lambda: semaphore.prolong(names[2], lease_seconds=90))
    with pytest.raises(NotHeld):  # and those that are held go back
        one.do(lambda: semaphore.release(*names))
    later = waiting.result(30)
    assert (owners(), len(later)) == ({*later}, 3)
    for name in later:
        one.do(lambda name=name: semaphore.release(name))
    assert _numbers(one, semaphore) == [4, 0, 4]


def test_expirable_permits_end_and_anyone_gives_them_back(bench: Bench) -> None:
    semaphore = bench.make("PermitExpirableSemaphore", permits=1)
    one, two = bench.actors(2)
    first = one.do(lambda: semaphore.acquire(lease_seconds=0.05))
    second = two.do(lambda: semaphore.acquire(lease_seconds=60, wait_seconds=20))
    assert second not in {None, first}
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


def test_how_long_a_permit_lasts_is_one_command(one: Bench) -> None:
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


@every_kind
def test_permits_are_taken_by_force(bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 600.0)  # no renewal says so in time
    semaphore, expirable = bench.make(kind, permits=3), kind != "Semaphore"
    holder, waiter, other = bench.actors(3)
    assert other.do(semaphore.force_release) is False
    taken = [holder.do(lambda: _take(semaphore, 1)) for _ in range(2)]
    tokens = [owner.token for owner in other.do(semaphore.state).owners]
    waiting = waiter.begin(lambda: _take(semaphore, 2))
    bench.waits(1, kind=semaphore._kind)
    assert other.do(lambda: semaphore.force_release(token=tokens[1] + 100)) is False
    assert other.do(lambda: semaphore.force_release(token=tokens[0])) is True
    assert waiting.result(30)
    assert other.do(semaphore.acquired) == 3
    assert other.do(semaphore.force_release) is True
    assert other.do(semaphore.available) == 3
    if not expirable:
        until(lambda: holder.do(lambda: semaphore.lost), "the holder hears it")
    for permit in reversed(taken):
        with pytest.raises(NotHeld):
            holder.do(lambda permit=permit: semaphore.release(*permit if expirable else []))


def test_permits_of_one_machine_name_who_has_them_and_who_waits(one: Bench, tmp_path: Path) -> None:
    ends: list[Any] = []
    make = partial(one.locks.HostSemaphore, "cpu", permits=2, folder=tmp_path)
    semaphore, named = make(on_released=lambda *end: ends.append(end)), make(owner="order 18")
    lock, (holder, other, waiter) = one.make("Lock"), one.actors(3)
    free = [other.do(ask) for ask in (semaphore.locked, semaphore.owner, semaphore.remaining_seconds)]
    assert (free, _numbers(other, semaphore)) == ([False, None, 0.0], [2, 0, 2])
    for taken in (1, 2):
        assert holder.do(semaphore.acquire)
        assert _numbers(other, semaphore) == [2, taken, 2 - taken]
    waiting = waiter.begin(named.acquire)
    until(lambda: other.do(semaphore.state).waiters == ("named:order 18",))
    assert holder.do(lock.acquire)
    owner = other.do(semaphore.owner)
    assert (owner.name, owner.token, owner.holds) == (other.do(lock.owner).name, None, 1)
    assert abs(owner.since.timestamp() - time.time()) < 60
    assert other.do(semaphore.remaining_seconds) == math.inf
    assert (holder.do(semaphore.hold_count), other.do(semaphore.hold_count)) == (2, 0)
    holder.do(semaphore.release)
    assert (waiting.result(30), ends) == (True, [("cpu", 0)])
    until(lambda: other.do(semaphore.waiters) == 0)
    assert other.do(named.hold_count) == 1
    other.do(named.release)
    holder.do(semaphore.release)
    assert (_numbers(other, semaphore), len(ends)) == ([2, 0, 2], 2)
    with pytest.raises(TypeError, match="no on_lost"):
        make(on_lost=print)
