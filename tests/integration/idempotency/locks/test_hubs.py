"""Hubs: what clients, threads and short-lived owners share and leave behind."""

import asyncio
import gc
import hashlib
import threading
import weakref
from typing import Any

import pytest
import redis
import redis.asyncio
from redis._parsers import _RESP2Parser
from redis.connection import DefaultParser

from idempotency import locks
from idempotency.locks import aio
from idempotency.locks.engine import holds, places
from idempotency.locks.engine.hub import script, tagged
from idempotency.locks.engine.threads import hub_of
from idempotency.observability import background
from idempotency.redis import subscriber, task_subscriber
from idempotency.redis.connection import ClientConnection
from idempotency.redis.subscriber import Subscription
from tests.integration.idempotency.locks.actors import Actor, until
from tests.integration.idempotency.locks.conftest import Bench


def test_threads_of_a_process_share_limits_and_a_subscriber(redis_server: redis.Redis) -> None:
    """Without `client=` django-redis gives every thread a client of its own."""
    actors, seen = [Actor() for _ in range(4)], locks.ExpiringSet("shared", ttl_seconds=60)
    assert [actor.do(lambda: seen.add("a")) for actor in actors] == [True, False, False, False]
    permits = locks.PermitExpirableSemaphore("shared", permits=1)
    given = [actor.do(lambda: permits.acquire(lease_seconds=60, wait_seconds=0)) for actor in actors]
    assert [permit is not None for permit in given] == [True, False, False, False]
    assert len({id(actor.do(lambda: locks.Lock("shared").hub())) for actor in actors}) == 1
    for actor in actors:
        actor.end()


def test_a_client_that_nobody_uses_takes_its_hub_along(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "READ_SECONDS", 0.01)
    monkeypatch.setattr(background, "LINGER_SECONDS", 0.01)
    client = redis.Redis.from_url(desk.servers.url)
    with locks.Lock("thing", client=client):
        locks.RateLimiter("thing", permits=1, client=client).acquire()
    pool = weakref.ref(client.connection_pool)
    del client
    until(lambda: gc.collect() and pool() is None, "the pool goes")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what nobody closed
def test_so_does_one_of_a_loop_that_goes_on(desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_subscriber, "READ_SECONDS", 0.01)

    async def used() -> Any:
        client = redis.asyncio.Redis.from_url(desk_of_tasks.servers.url)
        async with aio.Lock("thing", client=client):
            await aio.RateLimiter("thing", permits=1, client=client).acquire()
        await client.aclose()
        return weakref.ref(client)

    client = desk_of_tasks.run(used())
    until(lambda: gc.collect() and client() is None, "the client goes")


@pytest.mark.parametrize("client", ["redis://localhost", 5, object()])
def test_what_is_no_client_of_its_face_is_refused_by_name(desk: Bench, client: Any) -> None:
    async def take() -> None:
        await aio.Lock("thing", client=desk.plain if client == 5 else client).acquire()

    with pytest.raises(ValueError, match="client= must be a client of redis, for threads"):
        locks.Lock("thing", client=redis.asyncio.Redis() if client == 5 else client).acquire()
    with pytest.raises(ValueError, match=r"client= must be a client of redis\.asyncio"):
        asyncio.run(take())
    assert not desk.plain.exists(tagged("lock", "thing"))


def test_the_names_of_permits_are_used_again(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "SWEEP_AT", 3)
    with redis.Redis.from_url(desk.servers.url) as client:
        for number in range(20):
            with locks.Semaphore(
                "thing", permits=1, owner=f"order {number}", wait_seconds=0, client=client
            ) as permits:
                assert permits.held == 1
        assert desk.plain.hlen(tagged("semaphore", "thing")) == 2  # one, and the state
        assert len(hub_of(client).slots._taken) <= 5


def test_what_owners_leave_goes_and_is_not_looked_through_each_time(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task, a thread, a permit: each has a name of its own, and comes once."""
    for name in ("_ACQUIRE", "_RELEASE"):
        made = script("places", name[1:].lower())
        made.text = made.text.replace("local REMEMBER = 10000000", "local REMEMBER = 200000")
        made.sha = hashlib.sha1(made.text.encode()).hexdigest()
        monkeypatch.setattr(places, name, made)

    def reading(owner: str) -> Any:
        lock = desk.make("ReadWriteLock", owner=owner).read
        assert lock.acquire(wait_seconds=0, lease_seconds=30)
        return lock

    with desk.servers.data_nodes() as (server,):
        server.config_resetstat()
        stays, most, rounds = reading("stays"), 0, 0
        while (left := int(server.hlen(stays._key))) >= most:
            most, rounds = left, rounds + 1
            assert rounds < 5000, "nothing is ever forgotten"
            reading(f"once {rounds}").release()
        looked_through = server.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"]
    assert looked_through <= 3 < rounds


def test_a_dead_waiter_that_would_not_fit_yet_is_passed_over(desk: Bench) -> None:
    lock = desk.make("ReadWriteLock")
    first, second = desk.actors(2)
    assert first.do(lock.read.acquire)
    terms = lock.write._terms(hub_of(desk.client), (0, 1), 30.0)
    dead = [terms, "dead:1", "dead", "nobody-hears-this", "1", "0"]
    assert places._ACQUIRE.run(ClientConnection(desk.plain), lock.write._keys, dead)[0] == 0
    reading = second.begin(lambda: lock.read.acquire(wait_seconds=15))
    assert reading.result(30) is True
    second.do(lock.read.release)
    first.do(lock.read.release)


def test_a_subscriber_that_cannot_be_started_costs_speed_alone(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis.Redis.from_url(desk.servers.url)
    lock = locks.Lock("thing", client=client)
    first, second = desk.actors(2)
    assert first.do(lambda: lock.acquire(wait_seconds=0))

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        waiting = second.begin(lock.acquire)
        desk.waits(1)
    first.do(lock.release)
    assert waiting.result(30) is True
    second.do(lock.release)
    client.close()


def test_what_a_server_pushes_beside_messages_breaks_no_subscription(desk: Bench) -> None:
    client = redis.Redis.from_url(desk.servers.url, protocol=3)
    others = {each["id"] for each in client.client_list(_type="pubsub")}
    subscription = Subscription(client.connection_pool)
    subscription.subscribe("thing")
    assert subscription.get_message(timeout=30)
    (number,) = {each["id"] for each in client.client_list(_type="pubsub")} - others
    with redis.Redis.from_url(desk.servers.url, single_connection_client=True) as tracking:
        tracking.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        tracking.get("key")
        client.set("key", "value")
        assert subscription.get_message(timeout=30) is None
    client.publish("thing", "heard")
    assert subscription.get_message(timeout=30) == {"type": "message", "channel": b"thing", "data": b"heard"}
    subscription.close()


@pytest.mark.parametrize("parser", [DefaultParser, _RESP2Parser])  # of hiredis, and the one without
def test_a_subscription_that_was_closed_is_not_connected_again(desk: Bench, parser: Any) -> None:
    pool = redis.Redis.from_url(desk.servers.url, parser_class=parser).connection_pool
    subscription = Subscription(pool)
    subscription.subscribe("thing")
    message = subscription.get_message(timeout=30)
    assert message is not None
    assert message["type"] == "subscribe"
    subscription.connection.disconnect()
    with pytest.raises(redis.ConnectionError):
        subscription.get_message(timeout=30)
    subscription.close()
