"""Semaphores whose number of permits the server stores, and permits taken and given back by the piece."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idempotency.locks import LockLost, LockUnavailable, NotHeld, Semaphore
from idempotency.redis.fastpath import Script
from tests.integration.idempotency.locks import test_faults
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.worker import workers

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
        named = "permits" if kind.startswith("Permit") else "semaphore"
        setter, *waiters = bench.actors(4)
        answers = []
        for count, waiter in enumerate(waiters, start=1):
            answers.append(waiter.begin(lambda: _take(semaphore, 2)))
            bench.waits(count, kind=named)
        assert setter.do(lambda: semaphore.set_total(2)) is True
        assert answers[0].result(30)
        assert setter.do(lambda: semaphore.add(4)) == 6
        assert all(answer.result(30) for answer in answers)
        assert _asked(setter, semaphore) == [6, 6, 0]

    def test_fewer_permits_end_none_and_none_is_given_before_enough_are_back(
        self, bench: Bench, kind: str
    ) -> None:
        semaphore = bench.make(kind, permits=3)
        one, two = bench.actors(2)
        first = one.do(lambda: _take(semaphore, 2))
        second = one.do(lambda: _take(semaphore, 1))
        assert two.do(lambda: semaphore.reduce(2)) == 1
        assert _asked(two, semaphore) == [1, 3, -2]
        for each, free in ((second, -1), (first, 1)):
            assert not two.do(lambda: _take(semaphore, 1, wait_seconds=0))
            names = each if isinstance(each, list) else []
            one.do(lambda names=names: semaphore.release(*names))
            assert two.do(semaphore.available) == free
        assert two.do(lambda: semaphore.reduce(3)) == -2
        assert two.do(lambda: semaphore.add(3)) == 1  # in any order the sum is the same

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.5, "2", 2**53])
    def test_what_is_no_number_of_permits_is_refused_by_name_and_stored_nowhere(
        self, one: Bench, kind: str, bad: Any
    ) -> None:
        semaphore, actor = one.make(kind, permits=3), one.actor()
        for verb in (semaphore.set_total, semaphore.add, semaphore.reduce, lambda count: _take(semaphore, count)):
            with pytest.raises(ValueError, match="permits must be a whole number"):
                actor.do(lambda verb=verb: verb(bad))
        with pytest.raises(ValueError, match="permits must be a whole number"):
            one.make(kind, permits=bad)
        assert _asked(actor, semaphore) == [3, 0, 3]
        assert one.plain.keys("*:total") == []

    def test_each_verb_is_one_command(self, one: Bench, kind: str) -> None:
        semaphore, actor = one.make(kind, permits=30), one.actor()
        verbs = {
            "set": lambda: semaphore.set_total(90),
            "add": lambda: semaphore.add(1),
            "reduce": lambda: semaphore.reduce(1),
            "total": semaphore.total,
            "available": semaphore.available,
            "acquired": semaphore.acquired,
            "take": lambda: _take(semaphore, 3),
        }
        if kind == "Semaphore":
            verbs |= {"drain": semaphore.drain, "part": lambda: semaphore.release(4)}
        for verb in verbs.values():
            actor.do(verb)
        actor.do(lambda: semaphore.set_total(99))
        costs = test_faults.TestCosts()
        counts = {name: costs.commands(one, lambda verb=verb: actor.do(verb)) for name, verb in verbs.items()}
        assert counts == {name: {"evalsha": 1} for name in verbs}


_numbers = itertools.count()
steps = st.tuples(
    st.sampled_from(["acquire", "release", "drain", "add", "reduce"]), st.sampled_from("ab"), st.integers(1, 4)
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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


@contextlib.contextmanager
def _first_reply_lost() -> Iterator[None]:
    """The next command is executed, and the client hears nothing; then the server replies again."""
    once, once_async = Script.run, Script.run_async
    lost: list[None] = [None]

    def run(script: Script, *arguments: Any) -> Any:
        reply = once(script, *arguments)
        if lost and not lost.pop():
            raise redis.TimeoutError
        return reply

    async def run_async(script: Script, *arguments: Any) -> Any:
        reply = await once_async(script, *arguments)
        if lost and not lost.pop():
            raise redis.TimeoutError
        return reply

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Script, "run", run)
        patched.setattr(Script, "run_async", run_async)
        yield


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
        one.do(lambda: semaphore.release(2))
        assert waiting.result(30) is True
        assert one.do(lambda: semaphore.held) == 2
        with pytest.raises(NotHeld, match="is not held"):
            one.do(lambda: semaphore.release(3))
        assert len(ended) == 1
        one.do(semaphore.release)
        assert (one.do(lambda: semaphore.held), two.do(semaphore.acquired), len(ended)) == (0, 4, 2)

    def test_a_part_of_what_the_server_forgot_is_lost(self, bench: Bench) -> None:
        semaphore, actor = bench.make("Semaphore", permits=3), bench.actor()
        assert actor.do(lambda: semaphore.acquire(3))
        bench.forget()
        with pytest.raises(LockLost):
            actor.do(lambda: semaphore.release(2))
        assert actor.do(lambda: semaphore.held) == 0

    def test_drain_takes_what_is_free_and_passes_nobody(self, bench: Bench) -> None:
        semaphore = bench.make("Semaphore", permits=5)
        one, two, three = bench.actors(3)
        assert one.do(lambda: semaphore.acquire(2))
        assert two.do(semaphore.drain) == 3
        assert two.do(semaphore.drain) == 0
        assert two.do(lambda: semaphore.held) == 3
        waiting = three.begin(lambda: semaphore.acquire(4))
        bench.waits(1, kind="semaphore")
        one.do(semaphore.release)
        assert one.do(semaphore.drain) == 0
        two.do(semaphore.release)
        assert waiting.result(30) is True
        assert one.do(semaphore.drain) == 1

    @pytest.mark.parametrize("kind", SEMAPHORES)
    def test_an_acquire_whose_reply_is_lost_takes_nothing(self, one: Bench, kind: str) -> None:
        semaphore, actor = one.make(kind, permits=5), one.actor()
        take = semaphore.drain if kind == "Semaphore" else lambda: _take(semaphore, 3, wait_seconds=0)
        with _first_reply_lost(), pytest.raises(LockUnavailable):
            actor.do(take)
        assert _asked(actor, semaphore) == [5, 0, 5]

    def test_an_owners_permits_are_released_by_another_process(self, one: Bench) -> None:
        semaphore = one.make("Semaphore", permits=4, owner="order 17")
        actor, waiter = one.actors(2)
        for count in (1, 2):
            assert actor.do(lambda count=count: semaphore.acquire(count))
        assert waiter.do(lambda: one.make("Semaphore", permits=4, owner="order 1").acquire())
        waiting = waiter.begin(lambda: one.make("Semaphore", permits=4, owner="order 2").acquire(2))
        one.waits(1, kind="semaphore")
        how = {"kind": "Semaphore", "permits": 4}
        with workers(one.servers.url, 2) as (worker, other):
            assert worker.do("lock.release(4)", **how, owner="order 17") == "NotHeld"
            worker.do("lock.release()", **how, owner="order 17")
            assert waiting.result(30) is True
            worker.do("lock.release(1)", **how, owner="order 17")
            assert worker.do("lock.release()", **how, owner="order 17") == "NotHeld"
            for left in (2, 1):  # of an owner who waited for them
                other.do("lock.release(1)", **how, owner="order 2")
                assert other.do("lock.acquired()", **how, owner="order 2") == left
        for _ in range(2):
            with pytest.raises(LockLost):
                actor.do(semaphore.release)

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

    def test_how_long_a_permit_lasts_is_one_command(self, one: Bench) -> None:
        semaphore, actor = one.make("PermitExpirableSemaphore", permits=4), one.actor()
        long, short = [
            actor.do(lambda lease=lease: semaphore.acquire(lease_seconds=lease)) for lease in (900, 600)
        ]
        several = actor.do(lambda: semaphore.acquire_many(2, lease_seconds=300))
        with one.servers.data_nodes() as (server,):
            server.config_resetstat()
            left = [
                actor.do(lambda each=each: semaphore.remaining_seconds(each)) for each in (long, short, *several)
            ]
            assert server.info("commandstats")["cmdstat_evalsha"]["calls"] == 4
        assert [600 < left[0] <= 900, 300 < left[1] <= 600, *(0 < each <= 300 for each in left[2:])] == [True] * 4
        actor.do(lambda: semaphore.release(short))
        assert actor.do(lambda: semaphore.remaining_seconds(short)) == 0.0
