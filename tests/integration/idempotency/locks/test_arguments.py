"""A wrong argument is a `ValueError` that names it, before a command is sent."""

import decimal
import math
import re
import sys
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
from idempotency.arguments import LONGEST_SECONDS
from idempotency.cachedmap import CachedMap
from idempotency.locks import aio
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock, locked, transaction_lock, write_fenced
from idempotency.locks.zookeeper import AsyncZooKeeperLock, ZooKeeperLock
from tests.integration.idempotency.locks.conftest import Bench

NO_WAITS = (math.inf, decimal.Decimal("NaN"), LONGEST_SECONDS * 1.001, True, "5", [])
NO_TIMES = (*NO_WAITS, math.nan, sys.maxsize, 0, -1)
NO_TEXTS = (5, b"x", "\ud800")
WRONG: dict[str, tuple[Any, ...]] = {
    "wait_seconds": NO_WAITS,
    "release_seconds": (*NO_WAITS, None),
    "hold_seconds_max": (*NO_TIMES, None),
    **dict.fromkeys(("lease_seconds", "life_seconds", "interval_seconds", "ttl_seconds"), NO_TIMES),
    **dict.fromkeys(("on_lost", "on_expired", "on_released", "known", "read", "write"), (5, aio.close)),
    **dict.fromkeys(("name", "member", "message"), (*NO_TEXTS, None)),
    **dict.fromkeys(("prefix", "folder", "caller", "owner"), NO_TEXTS),
    **dict.fromkeys(("permits", "permits_per_client"), (math.nan, 2.5, "2", 2**53, True)),
    **dict.fromkeys(("most", "token", "count"), ("7", True)),
    "rate": (None, (1, 2)),
}


def takers(one: Bench, folder: Path) -> dict[str, list[Callable[..., Any]]]:
    """Return by argument what takes it."""
    of_redis = [partial(one.make, kind) for kind in ("Lock", "FairLock", "ReadWriteLock")]
    of_redis += [
        partial(one.make, "Semaphore", permits=1),
        partial(one.locks.RedLock, name="thing", clients=[copy(one.client) for _ in range(3)]),
    ]
    advisory, zookeeper = (AsyncAdvisoryLock, AsyncZooKeeperLock) if one.loop else (AdvisoryLock, ZooKeeperLock)
    of_others = [
        partial(one.locks.HostSemaphore, name="thing", permits=1, folder=folder / "new"),
        partial(advisory, name="thing"),
        partial(zookeeper, name="thing", client=KazooClient()),
    ]
    entered = [*of_redis, *of_others, partial(one.locks.MultiLock, [one.make("Lock")])]
    acquires = [getattr(each, "write", each).acquire for each in (make() for make in entered)]
    expirable, seen = (
        partial(one.make, "PermitExpirableSemaphore"),
        partial(one.make, "ExpiringSet", ttl_seconds=5),
    )
    limits = [partial(one.make, kind, permits=3) for kind in ("RateLimiter", "TokenBucket")]
    permits, limit, latch, topic = expirable(), limits[0](), one.make("CountDownLatch"), one.make("Topic")
    counted = [job for each in (permits, one.make("Semaphore")) for job in (each.set_total, each.add, each.reduce)]
    counted += [acquires[3], partial(permits.acquire_many, lease_seconds=60), limit.acquire, limit.release]
    return {
        "wait_seconds": [
            *entered,
            *acquires,
            limit.acquire,
            latch.wait,
            partial(permits.acquire, lease_seconds=1),
        ],
        "release_seconds": [*of_redis[:-1], expirable],
        "hold_seconds_max": of_redis,
        "lease_seconds": [*of_redis, *acquires[:4], permits.acquire, partial(permits.prolong, "a@1")],
        "life_seconds": [partial(latch.open, 1)],
        "interval_seconds": limits,
        "ttl_seconds": [seen],
        **{f"on_{end}": [*of_redis, expirable] for end in ("lost", "expired", "released")},
        "known": [partial(seen().note, "a")],
        **{each: [partial(CachedMap, "names")] for each in ("read", "write")},
        "name": [
            *of_redis,
            *of_others,
            *limits,
            expirable,
            seen,
            *(partial(one.make, kind) for kind in ("CountDownLatch", "Topic")),
        ],
        "member": [seen().add, seen().note],
        "message": [topic.tell, topic.hint],
        "prefix": [*of_redis, *limits, expirable, seen],
        "folder": of_others[:1],
        "caller": [limit.acquire, limit.release, limit.available],
        "owner": entered,
        "permits": [of_redis[3], expirable, *limits, *of_others[:1], *counted],
        "permits_per_client": limits,
        "most": [limit.shares],
        "token": [one.make("Lock").force_release],
        "count": [latch.open],
        "rate": [limit.set_rate],
    }


@pytest.mark.parametrize("argument", WRONG)
def test_it_is_checked_where_it_is_given(one: Bench, tmp_path: Path, argument: str) -> None:
    actor = one.actor()
    for take in takers(one, tmp_path)[argument]:
        for value in WRONG[argument]:
            with pytest.raises(ValueError, match=rf"{argument}\b.* must be .*{re.escape(repr(value))}"):
                actor.do(lambda take=take, value=value: take(**{argument: value}))
    assert one.plain.keys("*") == []
    assert list(tmp_path.iterdir()) == []


def test_what_would_be_another_lock_than_was_meant_is_refused(one: Bench) -> None:
    make, client, other = one.locks, one.client, locks if one.loop else aio
    a, clients = one.make("Lock"), [copy(client) for _ in range(3)]
    actor, quorum = one.actor(), make.RedLock("thing", clients=clients)
    permits, short = one.make("PermitExpirableSemaphore"), dict[str, Any](lease_seconds=0.002)
    jobs: list[tuple[str, Callable[[], Any]]] = [
        ("names must be a list of names", lambda: make.MultiLock.of("ab", client=client)),
        ("owner must not be empty", lambda: one.make("Lock", owner="")),
        ("name", lambda: one.make("Lock", "")),
        ("name", lambda: one.make("Topic", "}thing")),
        ("each once", lambda: make.RedLock("thing", clients=[client, client, copy(client)])),
        ("lease_seconds must be above 0.002", lambda: make.RedLock("thing", clients=clients, **short)),
        ("lease_seconds must be above 0.002", lambda: actor.do(lambda: quorum.acquire(**short))),
        ("lease_seconds", lambda: actor.do(lambda: permits.acquire(lease_seconds=None))),
        ("odd number of servers.*5", lambda: make.RedLock("thing", clients=5)),
        ("odd number of servers", lambda: make.RedLock("thing", clients=[*clients, client])),
        ("a MultiLock needs locks of Redis", lambda: make.MultiLock(5)),
        ("a MultiLock needs locks", lambda: make.MultiLock([])),
        ("a MultiLock needs locks", lambda: make.MultiLock([a, other.Lock("a", client=client)])),
        ("a MultiLock needs locks", lambda: make.MultiLock([a, one.make("Semaphore", permits=1)])),
        ("a MultiLock needs locks", lambda: make.MultiLock([a, AdvisoryLock("a")])),
    ]
    for sentence, job in jobs:
        with pytest.raises(ValueError, match=sentence):
            job()


def test_a_holder_that_enters_again_is_checked_too(one: Bench) -> None:
    actor = one.actor()
    lock = (AsyncAdvisoryLock if one.loop else AdvisoryLock)("thing")
    assert actor.do(lock.acquire)
    with pytest.raises(ValueError, match="wait_seconds"):
        actor.do(lambda: lock.acquire(wait_seconds="5"))
    actor.do(lock.release)
    assert actor.do(lambda: lock.held) is False


def test_the_longest_time_is_taken_and_ends(one: Bench) -> None:
    """What PEXPIRE would refuse after the key is written is refused before."""
    long, actor = LONGEST_SECONDS, one.actor()
    for kind in ("Lock", "Semaphore", "PermitExpirableSemaphore"):
        actor.do(partial(one.make(kind, **{} if kind == "Lock" else {"permits": 1}).acquire, lease_seconds=long))
    actor.do(lambda: one.make("CountDownLatch").open(1, life_seconds=long))
    actor.do(one.make("RateLimiter", permits=1, interval_seconds=long).acquire)
    actor.do(partial(one.make("ExpiringSet", ttl_seconds=long).add, "a"))
    names = one.plain.keys("*")
    assert len(names) >= 6
    assert all(one.plain.pttl(name) > 0 for name in names)


@pytest.mark.parametrize("permit", [*NO_TEXTS, None, "", "x", "@", "a@b", "@1"], ids=repr)
def test_a_permit_is_the_name_that_acquire_returned(one: Bench, permit: Any) -> None:
    permits, actor = one.make("PermitExpirableSemaphore", permits=1), one.actor()
    taken = actor.do(lambda: permits.acquire(lease_seconds=60))
    for job in (permits.release, partial(permits.release, taken), permits.remaining_seconds):
        with pytest.raises(ValueError, match=rf"the name that acquire returned.*{re.escape(repr(permit))}"):
            actor.do(lambda job=job: job(permit))
    with pytest.raises(ValueError, match="the name that acquire returned"):
        actor.do(lambda: permits.prolong(permit, lease_seconds=5))
    actor.do(lambda: permits.release(taken))


def test_messages_are_waited_for_as_locks_are(desk: Bench) -> None:
    with desk.make("Topic").listen() as messages:
        for seconds in ("5", 1e10):
            with pytest.raises(ValueError, match="wait_seconds"):
                messages.take(wait_seconds=seconds)
        assert messages.take(wait_seconds=None) is None  # the first: from now on everything is heard


@pytest.mark.django_db
def test_so_are_those_of_transactions() -> None:
    everyone: Any = Group.objects.all()
    jobs: dict[str, list[Callable[[Any], Any]]] = {
        "wait_seconds": [
            lambda seconds: transaction_lock("thing", wait_seconds=seconds),
            lambda seconds: locked(everyone, wait_seconds=seconds),
        ],
        "name": [transaction_lock],
        "token": [lambda token: write_fenced(everyone, token=token, fence_field="id")],
    }
    with transaction.atomic():
        for argument, values in {**WRONG, "token": (None, True, "5", 0, -1, 1.5, 2**63)}.items():
            for take in jobs.get(argument, []):
                for value in values:
                    with pytest.raises(ValueError, match=rf"{argument}\b.* must be .*{re.escape(repr(value))}"):
                        take(value)
        assert locked(everyone) == []  # the transaction goes on


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
