"""`RedLock` over five servers of its own kind: two may be killed."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency.locks import Lock, LockLost, LockTimeout, LockUnavailable, NotHeld, redlock
from idempotency.locks.engine import places
from shop.devserver.guardian import Guardian
from tests.conftest import a_folder_of_its_own
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench
from tests.redis_topologies import Single

TIMEOUTS: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 5}


@pytest.fixture(scope="module")
def five() -> Iterator[list[Single]]:
    guardian = Guardian()
    with a_folder_of_its_own() as folder:
        servers = [Single(guardian, folder / str(number)) for number in range(5)]
        try:
            for server in servers:
                server.start()
            yield servers
        finally:
            guardian.stop_all()


class Quorum:
    """What a test needs: clients of either face, and servers to kill."""

    def __init__(self, bench: Bench, servers: list[Single]) -> None:
        self.bench, self.servers = bench, servers
        self.plain = [
            redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0), **TIMEOUTS) for server in servers
        ]
        self.clients: list[Any] = self.plain if bench.loop is None else bench.run(self._async_clients())
        self.actor, self.actors = bench.actor, bench.actors

    async def _async_clients(self) -> list[Any]:
        return [
            redis.asyncio.Redis.from_url(server.url, retry=AsyncRetry(NoBackoff(), 0), **TIMEOUTS)
            for server in self.servers
        ]

    def make(self, **settings: Any) -> Any:
        return self.bench.locks.RedLock("thing", clients=self.clients, **settings)

    def held_on(self) -> int:
        """How many living servers have a holder."""
        count = 0
        for client, server in zip(self.plain, self.servers, strict=True):
            if server._processes:
                count += not Lock("thing", client=client, owner="looks").acquire(wait_seconds=0)
                try:
                    Lock("thing", client=client, owner="looks").release()
                except NotHeld:
                    continue
        return count

    def close(self) -> None:
        if self.bench.loop is not None:
            for client in self.clients:
                self.bench.run(client.aclose())
        for server in self.servers:
            if not server._processes:
                server.start()
            server.flush()


@pytest.fixture
def quorum(one: Bench, five: list[Single]) -> Iterator[Quorum]:
    made = Quorum(one, five)
    yield made
    made.close()


def test_a_majority_holds_it_and_all_give_it_back(quorum: Quorum) -> None:
    lock = quorum.make(lease_seconds=20)
    first, second = quorum.actors(2)
    assert first.do(lock.acquire) is True
    # lease - elapsed - drift (a hundredth of the lease and 2 ms)
    assert 0 < first.do(lambda: lock.valid_seconds) <= 20 - 0.202
    assert quorum.held_on() == 5
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    with pytest.raises(NotHeld):
        second.do(lock.release)
    first.do(lock.release)
    assert quorum.held_on() == 0
    waiting = second.begin(lock.acquire)
    assert waiting.result(30) is True
    second.do(lock.release)
    assert first.do(lambda: lock.acquire(lease_seconds=1000)) is True
    assert 900 < first.do(lambda: lock.valid_seconds) <= 1000 - 10.002
    first.do(lambda: lock.extend(1000, add=True))
    assert 1800 < first.do(lambda: lock.valid_seconds) <= 2000 - 20.002
    first.do(lock.release)


def test_two_of_five_may_be_gone(quorum: Quorum) -> None:
    lock = quorum.make()
    first, second = quorum.actors(2)
    for server in quorum.servers[:2]:
        server.kill()
    assert first.do(lock.acquire) is True
    assert quorum.held_on() == 3
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    assert quorum.held_on() == 3  # who failed has left nothing behind, and taken nothing away
    first.do(lock.release)
    assert second.do(lock.acquire) is True
    second.do(lock.release)


def test_three_of_five_may_not(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock, "UNAVAILABLE_SECONDS", 0.5)
    lock = quorum.make()
    actor = quorum.actor()
    for server in quorum.servers[:3]:
        server.kill()
    with pytest.raises(LockUnavailable, match="3 of 5 servers did not answer"):
        actor.do(lambda: lock.acquire(wait_seconds=0))
    with pytest.raises(LockUnavailable, match="3 of 5 servers did not answer"):
        actor.do(lock.acquire)  # which waits for whoever holds it, but not for servers
    assert quorum.held_on() == 0


def test_a_minority_is_rolled_back(quorum: Quorum) -> None:
    lock = quorum.make(wait_seconds=0)
    actor = quorum.actor()
    for client in quorum.plain[:3]:
        assert Lock("thing", client=client, owner="other").acquire(wait_seconds=0)
    with pytest.raises(LockTimeout):
        actor.do(lock.enter)
    assert quorum.held_on() == 3
    Lock("thing", client=quorum.plain[0], owner="other").release()
    assert actor.do(lock.acquire) is True
    actor.do(lock.release)


def test_it_is_renewed_and_lost_with_its_majority(quorum: Quorum, early_renewals: None, monkeypatch: Any) -> None:
    lock, actor = quorum.make(), quorum.actor()
    assert actor.do(lock.acquire)
    ends = [actor.do(node._hold).ends_at for node in lock.locks]
    until(lambda: all(actor.do(node._hold).ends_at > end for node, end in zip(lock.locks, ends, strict=True)))
    assert actor.do(lambda: (lock.held, lock.lost)) == (True, False)
    actor.do(lock.release)
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.5)  # soon over
    assert actor.do(lock.acquire)
    for server in quorum.servers[:3]:
        server.kill()
    until(lambda: actor.do(lambda: lock.lost))
    with pytest.raises(LockLost):
        actor.do(lock.release)


def test_what_a_majority_forgot_was_lost(quorum: Quorum) -> None:
    lock, actor = quorum.make(), quorum.actor()
    for forgetful in (2, 3):
        assert actor.do(lock.acquire)
        for server in quorum.servers[:forgetful]:
            server.flush()
        if forgetful < 3:
            actor.do(lock.release)
            continue
        with pytest.raises(LockLost):
            actor.do(lock.release)
    with pytest.raises(NotHeld):
        actor.do(lock.release)


def test_what_was_lost_is_released_before_it_is_taken_again(quorum: Quorum) -> None:
    lock, actor = quorum.make(lease_seconds=30), quorum.actor()
    assert actor.do(lock.acquire)
    for node in lock.locks[:3]:
        assert actor.do(lambda: lock.acquire(wait_seconds=0)) is True
        actor.do(lock.release)
        actor.do(node._hold).gone = True
    with pytest.raises(LockLost):
        actor.do(lock.acquire)
    assert actor.do(lambda: lock.lost) is True
    with pytest.raises(LockLost):
        actor.do(lock.release)


def test_a_majority_names_the_holder(quorum: Quorum) -> None:
    lock = quorum.make(lease_seconds=60)
    first, second = quorum.actors(2)
    assert first.do(lock.acquire)
    for server in quorum.servers[:2]:
        server.kill()
    owner = second.do(lock.owner)
    assert (owner.token, owner.holds) == (None, 1)
    assert 0 < owner.remaining_seconds <= 60
    assert (first.do(lock.hold_count), second.do(lock.hold_count)) == (1, 0)
    quorum.servers[2].flush()
    assert second.do(lock.locked) is False
    quorum.servers[3].kill()
    with pytest.raises(LockUnavailable):
        second.do(lock.locked)


def test_a_majority_extends_it_and_puts_its_holder_out(quorum: Quorum) -> None:
    lock = quorum.make(lease_seconds=20)
    first, second = quorum.actors(2)
    assert first.do(lock.acquire)
    waiting = second.begin(lock.acquire)
    for server in quorum.servers[:2]:
        server.kill()
    first.do(lambda: lock.extend(1000))
    assert 900 < first.do(lambda: lock.valid_seconds) <= 1000 - 10.002
    while not waiting.done():  # a wait that has not begun yet is not ended
        first.do(lock.cancel)
    assert waiting.result(30) is False
    assert second.do(lock.force_release) is True
    assert second.do(lambda: lock.acquire(wait_seconds=20)) is True
    with pytest.raises(LockLost):
        first.do(lambda: lock.extend(1000))


def test_a_prefix_is_another_lock(quorum: Quorum) -> None:
    lock, other = quorum.make(prefix="shared"), quorum.make()
    actor = quorum.actor()
    assert actor.do(lock.acquire)
    assert actor.do(other.locked) is False
    actor.do(lock.release)


def test_it_wants_an_odd_number_of_servers(quorum: Quorum) -> None:
    with pytest.raises(ValueError, match="odd number of servers"):
        quorum.bench.locks.RedLock("thing", clients=quorum.clients[:4])


def test_a_listener_hears_once_of_the_end_of_a_majority(quorum: Quorum, early_renewals: None) -> None:
    ends: list[str] = []
    calls = {f"on_{end}": lambda *_, end=end: ends.append(end) for end in ("lost", "expired", "released")}
    lock, actor = quorum.make(**calls), quorum.actor()
    assert actor.do(lock.acquire)
    actor.do(lock.release)
    assert ends == ["released"]
    assert actor.do(lambda: lock.acquire(lease_seconds=0.5))
    until(lambda: len(ends) == 2)
    assert ends[1] == "expired"
    assert actor.do(lock.acquire)
    for number, server in enumerate(quorum.servers[:3]):
        assert len(ends) == 2
        server.flush()
        until(lambda number=number: actor.do(lambda: sum(hold.gone for hold in lock._holds())) == number + 1)
    until(lambda: ends[2:] == ["lost"])
    with pytest.raises(LockLost):
        actor.do(lock.release)
    assert ends == ["released", "expired", "lost"]
