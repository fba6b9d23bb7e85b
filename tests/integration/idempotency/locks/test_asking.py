"""Who holds a lock, since when, for how long, and who waits: asked of the server, without an effect."""

import os
import socket
import time
from typing import Any

import pytest

from tests.integration.idempotency.locks.conftest import Bench

SIDES: dict[str, Any] = {
    "Lock": lambda bench: bench.make("Lock"),
    "FairLock": lambda bench: bench.make("FairLock"),
    "read": lambda bench: bench.make("ReadWriteLock").read,
    "write": lambda bench: bench.make("ReadWriteLock").write,
}


@pytest.mark.parametrize("side", SIDES)
def test_the_server_names_holder_lease_and_queue(bench: Bench, side: str) -> None:
    lock = SIDES[side](bench)
    holder, waiter, other = bench.actors(3)
    assert other.do(lock.locked) is False
    assert other.do(lock.owner) is None
    assert other.do(lock.remaining_seconds) == 0.0
    assert holder.do(lambda: lock.acquire(lease_seconds=60))
    assert holder.do(lambda: lock.acquire(lease_seconds=60))
    kind, blocked = ("readwrite", bench.make("ReadWriteLock").write) if side == "read" else (lock._kind, lock)
    waiting = waiter.begin(blocked.acquire)
    bench.waits(1, kind=kind)

    owner = other.do(lock.owner)
    assert owner.name.startswith(f"{socket.gethostname()}/{os.getpid()}/")
    assert owner.token == holder.do(lambda: lock.token)
    assert abs(owner.since.timestamp() - time.time()) < 60
    assert 0 < owner.remaining_seconds <= 60
    assert owner.holds == holder.do(lock.hold_count) == 2
    assert other.do(lock.hold_count) == 0
    assert other.do(lock.locked) is True
    assert 0 < other.do(lock.remaining_seconds) <= 60
    assert other.do(blocked.waiters) == 1
    assert len(other.do(blocked.state).waiters) == 1

    holder.do(lock.release)
    holder.do(lock.release)
    assert waiting.result(30) is True
    assert other.do(blocked.waiters) == 0
    assert other.do(blocked.owner).name != owner.name
    assert f"{kind}:{{thing}}" in repr(lock)


def test_each_side_counts_its_own(one: Bench) -> None:
    lock = one.make("ReadWriteLock")
    readers = one.actors(2)
    for reader in readers:
        assert reader.do(lock.read.acquire)
    state = readers[0].do(lock.read.state)
    assert [owner.token for owner in state.owners] == [each.do(lambda: lock.read.token) for each in readers]
    assert readers[0].do(lock.write.locked) is False


@pytest.mark.parametrize("question", ["state", "locked", "owner", "remaining_seconds", "hold_count", "waiters"])
def test_a_question_is_one_command(one: Bench, question: str) -> None:
    lock, actor = one.make("Lock"), one.actor()
    actor.do(getattr(lock, question))
    with one.servers.data_nodes() as (server,):
        server.config_resetstat()
        actor.do(getattr(lock, question))
        assert server.info("commandstats")["cmdstat_evalsha"]["calls"] == 1


def test_several_are_held_by_the_one_that_has_them_all(one: Bench) -> None:
    both = one.locks.MultiLock.of(["a", "b"], client=one.client)
    holder, other = one.actors(2)
    assert other.do(one.make("Lock", "a").acquire)
    assert holder.do(both.locked) is False
    other.do(one.make("Lock", "a").release)
    assert holder.do(both.acquire)
    assert holder.do(one.make("Lock", "b").acquire)
    assert (holder.do(both.hold_count), other.do(both.hold_count)) == (1, 0)
    assert other.do(both.owner).name == holder.do(one.make("Lock", "a").owner).name
    assert 0 < other.do(both.remaining_seconds) <= 30
    waiting = other.begin(both.acquire)
    one.waits(1, "a")
    assert holder.do(both.waiters) == 1
    holder.do(both.release)
    holder.do(one.make("Lock", "b").release)
    assert waiting.result(30) is True
