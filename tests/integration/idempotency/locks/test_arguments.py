"""A wrong argument is a `ValueError` that names it, before a command is sent: of every kind, on both faces."""

import decimal
import math
import re
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from kazoo.client import KazooClient

from idempotency import locks
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock, locked, transaction_lock, write_fenced
from idempotency.locks.zookeeper import AsyncZooKeeperLock, ZooKeeperLock
from tests.integration.idempotency.locks.conftest import Bench

MUTEXES = ("Lock", "FairLock", "ReadWriteLock")
NAMED: dict[str, dict[str, Any]] = {kind: {} for kind in (*MUTEXES, "CountDownLatch", "Topic")} | {
    "Semaphore": {"permits": 1},
    "PermitExpirableSemaphore": {"permits": 1},
    "RateLimiter": {"permits": 1},
    "TokenBucket": {"permits": 1},
    "ExpiringSet": {"ttl_seconds": 5},
}
NO_WAITS = (math.inf, math.nan, decimal.Decimal("NaN"), 1e10, True, "5", b"5", [], {})
NO_TIMES = (*NO_WAITS, 0)
NO_TEXTS = (None, 5, True, b"x", [], "\ud800")


def _of_redis(one: Bench, **settings: Any) -> list[Callable[[], Any]]:
    """Return what makes each kind that is entered, at Redis."""
    makes = [lambda kind=kind: one.make(kind, **settings) for kind in MUTEXES]
    return [
        *makes,
        lambda: one.make("Semaphore", permits=1, **settings),
        lambda: one.locks.RedLock("thing", clients=[copy(one.client) for _ in range(3)], **settings),
    ]


def _entered(one: Bench, **settings: Any) -> list[Callable[[], Any]]:
    """Return what makes each kind that is entered."""
    client = KazooClient()
    return [
        *_of_redis(one, **settings),
        lambda: one.locks.MultiLock([one.make("Lock")], **settings),
        lambda: one.locks.HostSemaphore("thing", permits=1, **settings),
        lambda: (AsyncAdvisoryLock if one.loop else AdvisoryLock)("thing", **settings),
        lambda: (AsyncZooKeeperLock if one.loop else ZooKeeperLock)("thing", client=client, **settings),
    ]


def _refused(name: str, value: Any, *jobs: Callable[[], Any]) -> None:
    for job in jobs:
        with pytest.raises(ValueError, match=rf"{name}\b.* must be .*{re.escape(repr(value))}"):
            job()


@pytest.mark.parametrize("seconds", NO_WAITS, ids=repr)
def test_a_wait_is_checked_where_it_is_given(one: Bench, tmp_path: Path, seconds: Any) -> None:
    actor = one.actor()
    _refused("wait_seconds", seconds, *_entered(one, wait_seconds=seconds))
    rate, permits = one.make("RateLimiter", permits=1), one.make("PermitExpirableSemaphore", permits=1)
    made = [make() for make in _entered(one)]
    waiting: list[Any] = [getattr(each, "write", each).acquire for each in made]
    waiting += [one.locks.HostSemaphore("thing", permits=1, folder=tmp_path / "new").acquire, rate.acquire]
    waiting += [lambda wait_seconds: permits.acquire(lease_seconds=1, wait_seconds=wait_seconds)]
    waiting += [one.make("CountDownLatch").wait]
    for wait in waiting:
        _refused("wait_seconds", seconds, lambda wait=wait: actor.do(lambda: wait(wait_seconds=seconds)))
    assert one.plain.keys("*") == []
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_enters_again_is_checked_too(one: Bench) -> None:
    actor = one.actor()
    lock = (AsyncAdvisoryLock if one.loop else AdvisoryLock)("thing")
    assert actor.do(lock.acquire)
    _refused("wait_seconds", "5", lambda: actor.do(lambda: lock.acquire(wait_seconds="5")))
    actor.do(lock.release)
    assert actor.do(lambda: lock.held) is False


@pytest.mark.parametrize("seconds", NO_TIMES, ids=repr)
def test_a_lease_is_checked_where_it_is_given(one: Bench, seconds: Any) -> None:
    actor = one.actor()
    _refused("lease_seconds", seconds, *_of_redis(one, lease_seconds=seconds))
    _refused("hold_seconds_max", seconds, *_of_redis(one, hold_seconds_max=seconds))
    for make in _of_redis(one)[:-1]:
        lock = make()
        side = lock.write if hasattr(lock, "write") else lock
        _refused("lease_seconds", seconds, lambda side=side: actor.do(lambda: side.acquire(lease_seconds=seconds)))
    assert one.plain.keys("*") == []


@pytest.mark.parametrize("seconds", [*NO_WAITS, None], ids=repr)
def test_the_patience_of_a_release_is_checked(one: Bench, seconds: Any) -> None:
    makes = _of_redis(one, release_seconds=seconds)[:-1]
    makes.append(lambda: one.make("PermitExpirableSemaphore", permits=1, release_seconds=seconds))
    _refused("release_seconds", seconds, *makes)


@pytest.mark.parametrize("end", ["lost", "expired", "released"])
def test_a_listener_is_a_function(one: Bench, end: str) -> None:
    wrong = {f"on_{end}": 5}
    permits: Any = lambda: one.make("PermitExpirableSemaphore", permits=1, **wrong)  # noqa: E731
    _refused(f"on_{end}", 5, *_of_redis(one, **wrong), permits)


@pytest.mark.parametrize("text", NO_TEXTS, ids=repr)
def test_what_must_be_text_is_no_other(one: Bench, text: Any) -> None:
    actor = one.actor()
    for kind, settings in NAMED.items():
        _refused("name", text, lambda kind=kind, settings=settings: one.make(kind, text, **settings))
        if text is not None:
            _refused("prefix", text, lambda kind=kind, settings=settings: one.make(kind, prefix=text, **settings))
    seen, topic, rate = (
        one.make("ExpiringSet", ttl_seconds=5),
        one.make("Topic"),
        one.make("RateLimiter", permits=1),
    )
    for member, job in (
        ("member", seen.add),
        ("member", seen.note),
        ("message", topic.tell),
        ("message", topic.hint),
    ):
        _refused(member, text, lambda job=job: actor.do(lambda: job(text)))
    if text is not None:
        _refused("owner", text, *_entered(one, owner=text))
        _refused("folder", text, lambda: one.locks.HostSemaphore("thing", permits=1, folder=text))
        for job in (rate.acquire, rate.release, rate.available):
            _refused("caller", text, lambda job=job: actor.do(lambda: job(caller=text)))
    client, folder = KazooClient(), None
    _refused("name", text, lambda: AdvisoryLock(text), lambda: ZooKeeperLock(text, client=client))
    _refused("name", text, lambda: one.locks.HostSemaphore(text, permits=1, folder=folder))
    assert one.plain.keys("*") == []


@pytest.mark.parametrize("permit", [*NO_TEXTS, "", "x", "@", "a@b", "@1"], ids=repr)
def test_a_permit_is_the_name_that_acquire_returned(one: Bench, permit: Any) -> None:
    permits, actor = one.make("PermitExpirableSemaphore", permits=1), one.actor()
    taken = actor.do(lambda: permits.acquire(lease_seconds=60))
    for job in (permits.release, lambda name: permits.prolong(name, lease_seconds=5), permits.remaining_seconds):
        with pytest.raises(ValueError, match=rf"the name that acquire returned.*{re.escape(repr(permit))}"):
            actor.do(lambda job=job: job(permit))
    with pytest.raises(ValueError, match="the name that acquire returned"):
        actor.do(lambda: permits.release(taken, permit))
    actor.do(lambda: permits.release(taken))
    with pytest.raises(ValueError, match="the name that acquire returned"):
        actor.do(lambda: permits.remaining_seconds(permit))


@pytest.mark.parametrize("number", [math.nan, math.inf, 2.5, "2", 2**53, True], ids=repr)
def test_permits_are_a_whole_number(desk: Bench, number: Any) -> None:
    for kind in ("Semaphore", "PermitExpirableSemaphore", "RateLimiter", "TokenBucket"):
        made = desk.make(kind, permits=3)
        take = partial(made.acquire_many, lease_seconds=60) if hasattr(made, "acquire_many") else made.acquire
        if "Semaphore" in kind:
            changes = [made.set_total, made.add, made.reduce]
        else:
            changes = [made.release, lambda permits, made=made: made.set_rate(locks.Rate(permits, 600))]
            _refused("permits_per_client", number, partial(desk.make, kind, permits_per_client=number))
        jobs = [partial(job, number) for job in (take, *changes)]
        _refused("permits", number, *jobs, partial(desk.make, kind, permits=number))
    assert desk.plain.keys("*") == []


@pytest.mark.parametrize("lease_seconds", [0.001, 0.002], ids=repr)
def test_a_lease_over_several_servers_is_longer_than_their_clocks_drift(one: Bench, lease_seconds: float) -> None:
    make = _of_redis(one)[-1]
    _refused("lease_seconds", lease_seconds, _of_redis(one, lease_seconds=lease_seconds)[-1])
    _refused(
        "lease_seconds", lease_seconds, lambda: one.actor().do(lambda: make().acquire(lease_seconds=lease_seconds))
    )
    assert one.plain.keys("*") == []


@pytest.mark.parametrize("value", [None, 5, []], ids=repr)
def test_several_are_given_as_several(one: Bench, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"odd number of servers.*{re.escape(repr(value))}"):
        one.locks.RedLock("thing", clients=value)
    with pytest.raises(ValueError, match="a MultiLock needs locks of Redis"):
        one.locks.MultiLock(value)


def test_what_is_called_for_a_known_member_is_a_function(one: Bench) -> None:
    _refused("known", 5, lambda: one.actor().do(lambda: one.make("ExpiringSet", ttl_seconds=5).note("a", known=5)))


@pytest.mark.parametrize("rate", [None, 5, (1, 2)], ids=repr)
def test_a_rate_is_a_rate(one: Bench, rate: Any) -> None:
    limiter = one.make("RateLimiter", permits=2)
    with pytest.raises(ValueError, match=rf"rate must be a Rate, .*{re.escape(repr(rate))}"):
        one.actor().do(lambda: limiter.set_rate(rate))


@pytest.mark.parametrize("seconds", [value for value in NO_WAITS if value is not True], ids=repr)
def test_messages_are_waited_for_as_locks_are(desk: Bench, seconds: Any) -> None:
    with desk.make("Topic").listen() as messages:
        _refused("wait_seconds", seconds, lambda: messages.take(wait_seconds=seconds))
        assert messages.take(wait_seconds=None) is None  # the first: from now on everything is heard


@pytest.mark.django_db
class TestOfTransactions:
    @pytest.mark.parametrize("seconds", NO_WAITS, ids=repr)
    def test_a_wait_is_checked(self, seconds: Any) -> None:
        with transaction.atomic():
            _refused("wait_seconds", seconds, lambda: transaction_lock("thing", wait_seconds=seconds))
            _refused("wait_seconds", seconds, lambda: locked(Group.objects.all(), wait_seconds=seconds))
            assert locked(Group.objects.all()) == []  # the transaction goes on

    @pytest.mark.parametrize("name", NO_TEXTS, ids=repr)
    def test_a_name_is_text(self, name: Any) -> None:
        with transaction.atomic():
            _refused("name", name, lambda: transaction_lock(name))

    @pytest.mark.parametrize("token", [None, True, "5", 0, -1, 1.5, 2**63], ids=repr)
    def test_a_token_is_a_number_of_a_hold(self, token: Any) -> None:
        _refused("token", token, lambda: write_fenced(Group.objects.all(), token=token, fence_field="id"))


def test_a_semaphores_permits_are_released_after_the_loops_end(desk_of_tasks: Bench) -> None:
    semaphore, actor = desk_of_tasks.make("Semaphore", permits=3), desk_of_tasks.actor()
    for permits in (1, 2):
        assert actor.do(lambda permits=permits: semaphore.acquire(permits))
    actor.do(desk_of_tasks.locks.close)
    actor.do(semaphore.release)
    assert actor.do(semaphore.acquired) == 1
    with pytest.raises(locks.NotHeld):
        desk_of_tasks.actor().do(semaphore.release)
    actor.do(lambda: semaphore.release(1))
    assert actor.do(semaphore.acquired) == 0
    with pytest.raises(locks.NotHeld):
        actor.do(semaphore.release)
