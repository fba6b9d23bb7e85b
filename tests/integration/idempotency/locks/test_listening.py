"""A listener learns how a hold of its process ended, from the watchdog that is there."""

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from idempotency import locks
from idempotency.locks import NotHeld
from idempotency.locks.engine import places
from idempotency.locks.engine.steps import Finish, perform
from idempotency.observability import metrics
from idempotency.redis import subscriber, task_subscriber
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench, client_of

Ends = list[tuple[str, str, int]]  # how, name and token of each


@pytest.fixture
def ends(early_renewals: None) -> Ends:
    return []


def calls(ends: Ends) -> Any:
    """Listeners that note each end."""
    return {
        f"on_{end}": lambda *what, end=end: ends.append((end, *what)) for end in ("lost", "expired", "released")
    }


def listening(bench: Bench, ends: Ends, kind: str = "Lock", **settings: Any) -> Any:
    return bench.make(kind, **calls(ends), **settings)


def test_of_a_release_by_force_at_once(bench: Bench, ends: Ends, monkeypatch: Any) -> None:
    """No renewal is near, nobody waits, and the subscriber would have gone home."""
    monkeypatch.setattr(places, "LEASE_SECONDS", 90_000.0)
    for module in (subscriber, task_subscriber):
        monkeypatch.setattr(module, "READ_SECONDS", 0.001)
    names = ["held", "a\x00b c"]
    held = [listening(bench, ends, name=name, owner="a\x00b | c") for name in names]
    actor, before = bench.actor(), threading.active_count()
    assert actor.do(held[0].acquire)
    assert actor.do(lambda: held[1].acquire(wait_seconds=0, lease_seconds=90_000.0))
    tokens = [actor.do(lambda lock=lock: lock.token) for lock in held]
    until(lambda: actor.do(held[0].hub).mailbox.confirmed)
    actor.do(partial(bench.make("Topic", "noise").tell, "x"))
    for lock in held:
        assert bench.actor().do(lock.force_release) is True
    until(lambda: len(ends) == 2)
    assert sorted(ends) == sorted(("lost", name, token) for name, token in zip(names, tokens, strict=True))
    for lock in held:
        with pytest.raises(NotHeld):
            actor.do(lock.release)
    assert len(ends) == 2
    assert threading.active_count() - before <= 4  # two actors, a subscriber and a watchdog


def test_of_the_end_of_a_lease_or_of_its_holder(bench: Bench, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.3)
    lock, actor = listening(bench, ends), bench.actor()
    for count in (1, 2):
        assert actor.do(lambda: lock.acquire(lease_seconds=0.1))
        until(lambda: actor.do(lambda: lock.lost))  # nothing renewed it
        until(lambda count=count: [end for end, *_ in ends] == ["expired"] * count)
    assert actor.do(lock.acquire)
    bench.end(actor)
    until(lambda: [end for end, *_ in ends] == ["expired", "expired", "lost"])


def test_of_permits_that_anyone_may_prolong(bench: Bench, ends: Ends) -> None:
    permits = listening(bench, ends, "PermitExpirableSemaphore", permits=3)
    holder, other = bench.actors(2)
    first, second = holder.do(lambda: permits.acquire_many(2, lease_seconds=600))
    name, _, token = first.rpartition("@")
    hub = holder.do(permits.hub)
    hold = hub.holds.get(permits._key, name)
    hold.ends_at = hold.due_at = 0.0  # as if another process had prolonged it since
    holder.do(hub.stir)
    until(lambda: hold.ends_at > 0.0)
    assert ends == []
    holder.do(lambda: permits.release(second))
    assert ends == [("released", "thing", int(token))]
    assert other.do(permits.force_release) is True
    until(lambda: len(ends) > 1)
    assert ends[1:] == [("lost", "thing", int(token))]
    with pytest.raises(NotHeld):
        holder.do(lambda: permits.release(first))
    assert holder.do(lambda: permits.acquire(wait_seconds=0, lease_seconds=0.05))
    until(lambda: len(ends) > 2)
    assert (ends[2][0], len(ends)) == ("expired", 3)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    ("kind", "how", "lease"),
    [
        ("Lock", {"owner": "order 17"}, {}),
        ("Semaphore", {"owner": "order 17", "permits": 2}, {}),
        ("PermitExpirableSemaphore", {"permits": 2}, {"lease_seconds": 600}),
    ],
)
def test_of_a_release_by_another_process(bench: Bench, kind: str, how: Any, lease: Any) -> None:
    """Another pool is to the server what another process is; no renewal is near."""
    ends: Ends = []
    held, holder = listening(bench, ends, kind, **how), bench.actor()
    with contextlib.closing(client_of(bench.kind, bench.servers)) as client:
        other = getattr(locks, kind)("thing", client=client, **how)
        own, theirs = (holder.do(lambda: held.acquire(**lease)) for _ in range(2))
        tokens = [owner.token for owner in holder.do(held.state).owners]
        permit = (theirs,) if lease else ()
        other.release(*permit)
        if kind == "Lock":  # taken twice
            assert ends == []
            other.release()
        until(lambda: len(ends) == 1)
        assert ends == [("released", "thing", tokens[-1])]
        with pytest.raises(NotHeld):
            holder.do(lambda: held.release(*permit))
        if lease:
            holder.do(lambda: held.release(own))
            assert ends[1:] == [("released", "thing", tokens[0])]


def several(bench: Bench, ends: Ends, **settings: Any) -> tuple[Any, list[Any]]:
    """A `MultiLock` that listens, and its locks, one of which listens too."""
    parts = [listening(bench, ends, name="a", **settings), bench.make("Lock", "b", **settings)]
    return bench.locks.MultiLock(parts, **calls(ends)), parts


def test_of_several_the_first_end_is_the_end(bench: Bench, early_renewals: None) -> None:
    ends: Ends = []
    (both, parts), actor, other = several(bench, ends), bench.actor(), bench.actor()
    assert actor.do(parts[0].acquire)
    actor.do(parts[0].release)
    assert [(end, name) for end, name, _ in ends] == [("released", "a")]
    for _ in range(2):
        assert actor.do(both.acquire)
    tokens = [actor.do(lambda lock=lock: lock.token) for lock in parts]
    actor.do(both.release)
    assert len(ends) == 1
    actor.do(both.release)
    assert ends[1:] == [("released", "a, b", tokens[1]), ("released", "a", tokens[0])]
    assert actor.do(both.acquire)
    token = actor.do(lambda: parts[1].token)
    assert other.do(parts[1].force_release) is True
    until(lambda: len(ends) > 3)
    assert ends[3:] == [("lost", "a, b", token)]
    with pytest.raises(NotHeld):
        actor.do(both.release)
    assert [(end, name) for end, name, _ in ends[4:]] == [("released", "a")]


def test_of_several_a_lease_that_ended_unnoticed(one: Bench) -> None:
    ends: Ends = []
    (both, parts), actor = several(one, ends), one.actor()
    assert actor.do(both.acquire)
    actor.do(parts[0]._hold).ends_at = 0.0
    with contextlib.suppress(NotHeld):
        actor.do(both.release)
    assert [end for end, name, _ in ends if name == "a, b"] == ["lost"]


def test_of_several_with_one_owner_and_prefix(one: Bench) -> None:
    ends: list[str] = []
    both = one.locks.MultiLock.of(
        ["a", "b"], client=one.client, prefix="shared", owner="order 17", on_released=lambda *_: ends.append("all")
    )
    first, second = one.actors(2)
    assert first.do(both.acquire)
    assert second.do(both.owner).name == "named:order 17"
    assert second.do(one.make("Lock", "a", prefix="shared").locked) is True
    assert second.do(one.make("Lock", "a").locked) is False
    second.do(both.release)
    assert ends == ["all"]


def test_one_that_fails_is_counted_and_nothing_else(one: Bench) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the listener's own")

    failures = metrics.background_failures.labels("locks-listener")
    lock, actor, before = one.make("Lock", on_released=fail), one.actor(), failures._value.get()
    assert actor.do(lock.acquire)
    actor.do(lock.release)
    assert failures._value.get() == before + 1
    assert actor.do(lock.locked) is False


@pytest.mark.parametrize(("kind", "permits"), [("Lock", {}), ("Semaphore", {"permits": 1})])
def test_a_renewal_that_comes_after_the_release_is_no_loss(
    servers: Callable[[str], Any], kind: str, permits: Any
) -> None:
    ends: Ends = []
    lock = getattr(locks, kind)("crossed", client=servers("Redis").client, **permits, **calls(ends))
    assert lock.acquire()
    (hold,), hub = lock._holds(), lock.hub()
    answered: list[Any] = []

    def answer(step: Any) -> Any:
        if isinstance(step, Finish):
            return perform(step.steps, answer)
        reply = hub.answer(step)
        if not answered:
            answered.append(reply)
            perform(hub.prolong([hold]), hub.answer)  # before the release hears its own reply
        return reply

    perform(type(lock).release.steps(lock, *permits.values()), answer)
    assert (len(answered), ends) == (1, [("released", "crossed", hold.token)])
