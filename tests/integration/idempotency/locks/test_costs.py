"""Python cost of an uncontended pair, in function calls: they are the same every time, unlike seconds."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from idempotency import locks

# calls of Python and C functions, those of redis-py included; a pair is an acquire and its release
CALLS = {"Lock": 195, "Semaphore": 235}


def calls_of(pair: Callable[[], None]) -> int:
    """Return the calls of one pair: the fewest of ten, for now and then one has more to do."""
    found = []
    for _ in range(10):
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        gc.disable()  # nobody else's calls
        sys.setprofile(count)
        try:
            pair()
        finally:
            sys.setprofile(None)
            gc.enable()
        found.append(calls)
    return min(found)


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
        assert 0 < calls_of(pair) <= CALLS[kind]
