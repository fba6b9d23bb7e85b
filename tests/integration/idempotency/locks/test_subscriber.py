"""Messages reach all that wait, listen or hold in a process; a lost connection is noticed.

No waiter asks the server again here, so one that is not heard fails its test.
"""

import sys
import threading

import pytest
import redis

from idempotency.locks import Lock, Topic
from idempotency.locks.engine import places
from idempotency.locks.engine.threads import ThreadHub, hub_of
from idempotency.redis import subscriber
from idempotency.redis.subscriber import Subscriber
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench


class Stage:
    """A client of its own, on whose subscriber the server may hang up."""

    def __init__(self, desk: Bench) -> None:
        self.desk, self.client = desk, redis.Redis.from_url(desk.servers.url)
        self.subscriber: Subscriber = hub_of(self.client).subscriber
        with Topic("first", client=self.client).listen() as messages:
            assert messages.take(wait_seconds=30) is None  # there is a connection now

    def cut(self) -> None:
        """The server hangs up on every subscriber."""
        self.cut_off = self.subscriber._pubsub
        with self.desk.servers.data_nodes() as (server,):
            server.client_kill_filter(_type="pubsub")

    def hears_again(self) -> None:
        until(lambda: self.subscriber._pubsub is not self.cut_off and self.subscriber.mailbox.confirmed)


@pytest.fixture
def stage(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(places, "_look_again_seconds", lambda position, left_seconds: 100.0)
    monkeypatch.setattr(subscriber, "READ_SECONDS", 100.0)
    return Stage(desk)


@pytest.mark.parametrize("lease_seconds", [None, 90_000.0], ids=["renewed", "a lease of its own"])
def test_a_holder_put_out_while_nothing_was_heard(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lease_seconds: float | None
) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 90_000.0)
    lost: list[int] = []
    lock = Lock("held", client=stage.client, on_lost=lambda _, token: lost.append(token))
    holder, other = stage.desk.actors(2)
    holder.do(lambda: lock.acquire(lease_seconds=lease_seconds))
    token = holder.do(lambda: lock.token)
    left = other.do(lock.remaining_seconds)
    stage.cut()
    stage.hears_again()
    more = 0 if lease_seconds else 60  # no longer than it asked for
    assert 0 < other.do(lock.remaining_seconds) <= left + more
    with stage.subscriber.changing:  # it cannot subscribe again
        stage.cut()
        assert other.do(lambda: Lock("held", client=stage.client).force_release())
    until(lambda: lost == [token])
    assert holder.do(lambda: lock.lost)


def test_a_connection_that_was_lost_while_nobody_read(stage: Stage) -> None:
    topic = Topic("thing", client=stage.client)
    for _ in range(2):
        stage.cut()
        with topic.listen() as messages:
            assert messages.take(wait_seconds=30) is None
            until(lambda: stage.client.pubsub_numsub(topic.channel)[0][1] == 1)
            topic.tell("heard")
            until(lambda messages=messages: messages.take(wait_seconds=30) == "heard")
    stage.cut()
    lock, (first, second) = Lock("thing", client=stage.client), stage.desk.actors(2)
    first.do(lock.acquire)
    waiting = second.begin(lock.acquire)
    stage.desk.waits(1)
    stage.hears_again()
    first.do(lock.release)
    assert waiting.result(30) is True


def test_threads_that_meet_share_one_hub() -> None:
    """The mail leads to the holds of that hub."""
    clients, threads = [redis.Redis() for _ in range(300)], 4
    barrier, seen = threading.Barrier(threads, timeout=30), [list[ThreadHub]() for _ in range(threads)]

    def ask(found: list[ThreadHub]) -> None:
        for client in clients:
            barrier.wait()
            found.append(hub_of(client))

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asking = [threading.Thread(target=ask, args=[found]) for found in seen]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    for hubs in zip(*seen, strict=True):
        assert len(set(hubs)) == 1
        assert hubs[0].subscriber.mailbox.mail.holds is hubs[0].holds
