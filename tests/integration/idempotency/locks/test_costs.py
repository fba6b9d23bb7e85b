"""Function calls, and commands counted by the server."""

from collections.abc import Callable
from operator import methodcaller as ask
from typing import Any

import pytest

from idempotency import locks
from idempotency.locks import Rate
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


QUESTIONS = [ask(name) for name in ("state", "locked", "owner", "waiters")]
COUNTS = [ask(name) for name in ("total", "acquired", "available")]
CHANGES = [ask("set_total", 90), ask("add", 1), ask("reduce", 1)]
RATE: dict[str, Any] = {"permits": 99, "interval_seconds": 600, "permits_per_client": 9}
OF_A_RATE = [
    *(ask("acquire", caller="one"), ask("release", caller="one"), ask("available"), ask("rate")),
    *(ask("set_rate", Rate(98, 600), clear=True), ask("delete")),
]
VERBS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "Lock": ({}, [ask("acquire"), *QUESTIONS, ask("remaining_seconds"), ask("hold_count"), ask("release")]),
    "Semaphore": (
        {"permits": 30},
        [
            *(*CHANGES, ask("acquire", 3), ask("drain"), ask("release", 4)),
            *(*QUESTIONS, *COUNTS, ask("remaining_seconds"), ask("hold_count")),
        ],
    ),
    "PermitExpirableSemaphore": (
        {"permits": 30},
        [*CHANGES, ask("acquire_many", 3, lease_seconds=60), *QUESTIONS, *COUNTS],
    ),
    "CountDownLatch": ({}, [*QUESTIONS, ask("count")]),
    "RateLimiter": (RATE, OF_A_RATE),
    "TokenBucket": (RATE, OF_A_RATE),
}


@pytest.mark.parametrize("kind", VERBS)
def test_each_verb_and_question_is_one_command(one: Bench, kind: str) -> None:
    settings, verbs = VERBS[kind]
    lock, actor = one.make(kind, **settings), one.actor()
    for verb in verbs:  # the server knows each script then
        actor.do(lambda verb=verb: verb(lock))
    counts = [one.commands(lambda verb=verb: actor.do(lambda: verb(lock))) for verb in verbs]
    assert counts == [{"evalsha": 1}] * len(verbs), verbs


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
