"""Costs that are the same every time, unlike seconds: function calls, and commands counted by the server."""

from collections.abc import Callable
from typing import Any

import pytest

from idempotency import locks
from idempotency.locks.engine import places
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.profiling import fewest_calls

# calls of Python and C functions, those of redis-py included; a pair is an acquire and its release
CALLS = {"Lock": 195, "Semaphore": 235}


@pytest.mark.parametrize("kind", CALLS)
def test_an_uncontended_pair_costs_at_most_so_many_calls(servers: Callable[[str], Any], kind: str) -> None:
    lock = getattr(locks, kind)(
        "thing", client=servers("Redis").client, **({"permits": 9} if kind == "Semaphore" else {})
    )

    def pair() -> None:
        assert lock.acquire()
        lock.release()

    # another hold is due before any of these: however slow the watchdog's thread is, no pair wakes it
    with locks.Lock("another", client=servers("Redis").client):
        assert 0 < fewest_calls(pair) <= CALLS[kind]


def test_an_uncontended_pair_is_two_commands(one: Bench) -> None:
    lock, actor = one.make("Lock"), one.actor()

    def pair() -> None:
        actor.do(lock.acquire)
        actor.do(lock.release)

    pair()
    assert one.commands(pair) == {"evalsha": 2}


def test_a_hand_over_is_two_commands(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CONFIRM_SECONDS", 10.0)  # however slow this machine is
    lock = one.make("FairLock")
    first, second = one.actors(2)
    assert first.do(lock.acquire)

    def change_hands() -> None:
        waiting = second.begin(lock.acquire)
        one.waits(1)
        first.do(lock.release)
        assert waiting.result(30) is True

    for _ in range(2):  # a connection that was cut off in another test is missed, and then made again
        change_hands()
        second.do(lock.release)
        assert first.do(lock.acquire)
    assert one.commands(change_hands) == {"evalsha": 2}
    second.do(lock.release)
