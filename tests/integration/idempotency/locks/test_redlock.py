"""`RedLock` over five servers of its own kind: two may be killed."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio

from idempotency.locks import Lock, LockLost, LockTimeout, LockUnavailable, NotHeld, redlock
from idempotency.locks.engine import places
from tests.conftest import guarded_folder
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench, client_of
from tests.redis_topologies import Single


@pytest.fixture(scope="module")
def five() -> Iterator[list[Single]]:
    with guarded_folder() as (guardian, folder):
        servers = [Single(guardian, folder / str(number)) for number in range(5)]
        for server in servers:
            server.start()
        yield servers


class Quorum:
    """Clients of either face, and servers to kill."""

    def __init__(self, bench: Bench, servers: list[Single]) -> None:
        self.bench, self.servers = bench, servers
        self.plain = [client_of("Redis", server) for server in servers]
        self.clients: list[Any] = self.plain if bench.loop is None else bench.run(self._async_clients())
        self.actor, self.actors = bench.actor, bench.actors

    async def _async_clients(self) -> list[Any]:
        return [client_of("Redis", server, redis.asyncio) for server in self.servers]

    def make(self, **settings: Any) -> Any:
        return self.bench.locks.RedLock("thing", clients=self.clients, **settings)

    def held_on(self) -> int:
        """How many living servers have a holder."""
        living = (client for client, server in zip(self.plain, self.servers, strict=True) if server._processes)
        return sum(Lock("thing", client=client).locked() for client in living)

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.servers[number].kill()

    def flush(self, *numbers: int) -> None:
        for number in numbers:
            self.servers[number].flush()

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
    lock, other = quorum.make(lease_seconds=20), quorum.make(prefix="shared")
    first, second = quorum.actors(2)
    assert first.do(lock.acquire) is True
    # lease - elapsed - drift (a hundredth of the lease and 2 ms)
    assert 0 < first.do(lambda: lock.valid_seconds) <= 20 - 0.202
    assert quorum.held_on() == 5
    assert second.do(other.locked) is False
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    with pytest.raises(NotHeld):
        second.do(lock.release)
    waiting = second.begin(lock.acquire)
    first.do(lock.release)
    assert waiting.result(30) is True
    second.do(lock.release)
    assert quorum.held_on() == 0
    assert first.do(lambda: lock.acquire(lease_seconds=1000)) is True
    assert 900 < first.do(lambda: lock.valid_seconds) <= 1000 - 10.002
    first.do(lambda: lock.extend(1000, add=True))
    assert 1800 < first.do(lambda: lock.valid_seconds) <= 2000 - 20.002
    first.do(lock.release)


def test_three_of_five_may_not(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock, "UNAVAILABLE_SECONDS", 0.5)
    lock, actor = quorum.make(), quorum.actor()
    quorum.kill(0, 1, 2)
    with pytest.raises(LockUnavailable, match="3 of 5 servers did not answer"):
        actor.do(lambda: lock.acquire(wait_seconds=0))
    with pytest.raises(LockUnavailable, match="3 of 5 servers did not answer"):
        actor.do(lock.acquire)  # which waits for the holder, but not for servers
    assert quorum.held_on() == 0
    with pytest.raises(LockUnavailable):
        actor.do(lock.locked)


def test_two_of_five_may_be_gone(quorum: Quorum) -> None:
    lock = quorum.make(lease_seconds=60)
    first, second = quorum.actors(2)
    assert first.do(lock.acquire) is True
    quorum.kill(0, 1)
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    assert quorum.held_on() == 3  # who failed has left nothing behind, and taken nothing away
    owner = second.do(lock.owner)
    assert (owner.token, owner.holds) == (None, 1)
    assert 0 < owner.remaining_seconds <= 60
    assert (first.do(lock.hold_count), second.do(lock.hold_count)) == (1, 0)
    first.do(lambda: lock.extend(1000))
    assert 900 < first.do(lambda: lock.valid_seconds) <= 1000 - 10.002
    waiting = second.begin(lock.acquire)
    while not waiting.done():  # a wait that has not begun yet is not ended
        first.do(lock.cancel)
    assert waiting.result(30) is False
    assert second.do(lock.force_release) is True
    assert second.do(lambda: lock.acquire(wait_seconds=20)) is True
    with pytest.raises(LockLost):
        first.do(lambda: lock.extend(1000))
    quorum.flush(2)
    assert first.do(lock.locked) is False


def test_a_minority_is_rolled_back(quorum: Quorum) -> None:
    lock, actor = quorum.make(wait_seconds=0), quorum.actor()
    first, *others = [Lock("thing", client=client, owner="other") for client in quorum.plain[:3]]
    for other in (first, *others):
        assert other.acquire(wait_seconds=0)
    with pytest.raises(LockTimeout):
        actor.do(lock.enter)
    assert quorum.held_on() == 3
    first.release()
    assert actor.do(lock.acquire) is True
    actor.do(lock.release)
    assert quorum.held_on() == 2
    for other in others:
        other.release()


def test_what_a_majority_forgot_was_lost_and_is_released_before_it_is_taken_again(quorum: Quorum) -> None:
    lock, actor = quorum.make(lease_seconds=30), quorum.actor()
    quiet = quorum.make(raise_on_lost=False)
    assert actor.do(lock.acquire)
    quorum.flush(0, 1)
    actor.do(lock.release)
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
    with pytest.raises(LockLost):
        actor.do(quorum.bench.within(lock, lambda: quorum.flush(2, 3, 4)))
    with pytest.raises(NotHeld):
        actor.do(lock.release)
    actor.do(quorum.bench.within(quiet, lambda: quorum.flush(2, 3, 4)))
    assert actor.do(lambda: quiet.lost) is False


def test_it_is_renewed_and_a_listener_hears_once_of_the_end_of_a_majority(
    quorum: Quorum, early_renewals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []
    calls = {f"on_{end}": lambda *_, end=end: ends.append(end) for end in ("lost", "expired", "released")}
    lock, actor = quorum.make(**calls), quorum.actor()
    assert actor.do(lock.acquire)
    first = [actor.do(node._hold).ends_at for node in lock.locks]
    until(lambda: all(actor.do(node._hold).ends_at > end for node, end in zip(lock.locks, first, strict=True)))
    assert actor.do(lambda: (lock.held, lock.lost)) == (True, False)
    actor.do(lock.release)
    assert ends == ["released"]
    assert actor.do(lambda: lock.acquire(lease_seconds=0.5))
    until(lambda: len(ends) == 2)
    assert actor.do(lock.acquire)
    for number in range(3):
        assert ends == ["released", "expired"]
        quorum.flush(number)
        until(lambda number=number: actor.do(lambda: sum(hold.gone for hold in lock._holds())) == number + 1)
    until(lambda: ends[2:] == ["lost"])
    with pytest.raises(LockLost):
        actor.do(lock.release)
    assert ends == ["released", "expired", "lost"]
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.5)  # soon over
    assert actor.do(lock.acquire)
    quorum.kill(0, 1, 2)
    until(lambda: actor.do(lambda: lock.lost))
    with pytest.raises(LockLost):
        actor.do(lock.release)
