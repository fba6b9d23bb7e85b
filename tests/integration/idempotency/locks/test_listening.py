"""A listener learns how a hold of its process ended, from the watchdog that is there."""

from collections.abc import Callable
from typing import Any

import pytest

from idempotency.locks import NotHeld
from idempotency.locks.engine import holds, places
from idempotency.observability import metrics
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench

ENDS = ("lost", "expired", "released")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    monkeypatch.setattr(holds, "RENEW_AFTER", 0.01)
    return []


def listening(bench: Bench, ends: list[tuple[str, str, int]], kind: str = "Lock", **settings: Any) -> Any:
    def listener(end: str) -> Callable[[str, int], None]:
        return lambda name, token: ends.append((end, name, token))

    return bench.make(kind, **{f"on_{end}": listener(end) for end in ENDS}, **settings)


def test_of_a_release_once(one: Bench, ends: list[tuple[str, str, int]]) -> None:
    lock, actor = listening(one, ends), one.actor()
    for _ in range(2):
        assert actor.do(lock.acquire)
    token = actor.do(lambda: lock.token)
    actor.do(lock.release)
    assert ends == []
    actor.do(lock.release)
    assert ends == [("released", "thing", token)]


def test_of_a_loss(one: Bench, ends: list[tuple[str, str, int]]) -> None:
    lock, actor = listening(one, ends), one.actor()
    assert actor.do(lock.acquire)
    token = actor.do(lambda: lock.token)
    assert one.actor().do(lock.force_release) is True
    until(lambda: ends)
    with pytest.raises(NotHeld):
        actor.do(lock.release)
    assert ends == [("lost", "thing", token)]


def test_of_the_end_of_a_lease(one: Bench, ends: list[tuple[str, str, int]]) -> None:
    lock, actor = listening(one, ends, lease_seconds=0.2), one.actor()
    assert actor.do(lock.acquire)
    until(lambda: ends)
    assert [end for end, *_ in ends] == ["expired"]
    assert actor.do(lambda: lock.lost) is True  # nothing renewed it


def test_of_a_holder_that_ended_with_its_lock(
    one: Bench, ends: list[tuple[str, str, int]], monkeypatch: Any
) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.3)
    lock, actor = listening(one, ends), one.actor()
    assert actor.do(lock.acquire)
    actor.end()
    one._actors.remove(actor)
    until(lambda: ends)
    assert [end for end, *_ in ends] == ["lost"]


def test_one_that_fails_is_counted_and_nothing_else(one: Bench) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the listener's own")

    failures = metrics.background_failures.labels("locks-listener")
    lock, actor, before = one.make("Lock", on_released=fail), one.actor(), failures._value.get()
    assert actor.do(lock.acquire)
    actor.do(lock.release)
    assert failures._value.get() == before + 1
    assert actor.do(lock.locked) is False


def test_of_an_ended_lease_that_is_taken_again(one: Bench, ends: list[tuple[str, str, int]]) -> None:
    lock, actor = listening(one, ends, lease_seconds=0.05), one.actor()
    assert actor.do(lock.acquire)
    until(lambda: actor.do(lambda: lock.lost))
    assert actor.do(lock.acquire)
    assert [end for end, *_ in ends][:1] == ["expired"]
