"""Clients with retries of their own, with little permission, of another make."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
import valkey
import valkey.asyncio
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from idempotency.locks import LockError, LockUnavailable
from idempotency.locks.engine.hub import ACL
from tests.integration.idempotency.locks.conftest import TIMEOUTS, Bench, a_bench
from tests.processes import stand_still

QUARTER_OF_AN_HOUR = ConstantBackoff(900)
OPTIONS = {"Semaphore": {"permits": 1}, "RateLimiter": {"permits": 9}}  # of a kind that needs some


@contextmanager
def client_for(one: Bench, **settings: Any) -> Iterator[Any]:
    """A client of the bench's face and server, closed afterwards."""
    url = one.servers.url
    if one.loop is None:
        with redis.Redis.from_url(url, **TIMEOUTS | settings) as client:
            yield client
        return

    async def made() -> Any:
        return redis.asyncio.Redis.from_url(url, **TIMEOUTS | settings)

    client = one.run(made())
    yield client
    one.run(one.locks.close())
    one.run(client.aclose())


@pytest.mark.parametrize("kind", ["Lock", "CountDownLatch"])
def test_the_wait_is_a_bound_whatever_the_client_retries(one: Bench, kind: str) -> None:
    """The client's own next try would come in a quarter of an hour."""
    retry = Retry if one.loop is None else redis.asyncio.retry.Retry
    one.servers.kill()
    try:
        with client_for(one, retry=retry(QUARTER_OF_AN_HOUR, 3)) as client:
            made = getattr(one.locks, kind)("thing", client=client, **OPTIONS.get(kind, {}))
            wait = made.wait if kind == "CountDownLatch" else made.acquire
            with pytest.raises(LockUnavailable):
                one.actor().do(lambda: wait(wait_seconds=0.5))
    finally:
        one.servers.start()


@pytest.mark.parametrize("kind", ["Lock", "RateLimiter", "CountDownLatch"])
def test_the_wait_is_a_bound_however_long_the_client_waits_for_a_silent_server(one: Bench, kind: str) -> None:
    """On an open connection, and on the next one, which is not greeted."""
    server = one.plain.info("server")["process_id"]
    with client_for(one, socket_timeout=900, socket_connect_timeout=900) as client:
        made = getattr(one.locks, kind)("thing", client=client, **OPTIONS.get(kind, {}))
        wait = made.wait if kind == "CountDownLatch" else made.acquire
        assert one.actor().do(lambda: wait(wait_seconds=0)) is not False
        try:
            stand_still(server)
            waiting = [
                one.actor().begin(lambda seconds=seconds: wait(wait_seconds=seconds)) for seconds in (0, 0.5)
            ]
            for each in waiting:
                with pytest.raises(LockUnavailable):
                    each.result(30)
        finally:
            os.kill(server, signal.SIGCONT)


@pytest.mark.usefixtures("collected")
class TestPermissions:
    """Each on Redis 6 and on Valkey, which say it differently."""

    @pytest.fixture(params=[("Redis", "threads"), ("Valkey", "asyncio")], ids="-".join)
    def bench(self, request: pytest.FixtureRequest, servers: Callable[[str], Any]) -> Iterator[Bench]:
        kind, face = request.param
        with a_bench(kind, servers(kind), tasks=face == "asyncio") as made:
            yield made
            made.plain.execute_command("ACL", "DELUSER", "locks")

    @contextmanager
    def user(self, bench: Bench, *rules: str) -> Iterator[Any]:
        bench.plain.execute_command("ACL", "SETUSER", "locks", "reset", "on", ">secret", *rules)
        with client_for(bench, username="locks", password="secret") as client:
            yield client

    def test_what_the_docs_say_suffices(self, bench: Bench) -> None:
        assert f"`{ACL}`" in re.sub(r"\s+", " ", Path("docs/how-to/take-a-lock.md").read_text())
        first, second = bench.actors(2)
        with self.user(bench, *ACL.split()) as client:
            lock = bench.locks.ReadWriteLock("thing", client=client).write
            first.do(lock.acquire)
            waiting = second.begin(lambda: lock.acquire(wait_seconds=20))
            bench.waits(1, kind="readwrite")
            first.do(lock.release)
            assert waiting.result(30) is True
            second.do(lock.release)
            latch = bench.locks.CountDownLatch("thing", client=client)
            first.do(lambda: latch.open(1))
            first.do(latch.count_down)
            seen = bench.locks.ExpiringSet("thing", ttl_seconds=9, client=client)
            assert first.do(lambda: seen.add("a")) is True
            first.do(lambda: bench.locks.RateLimiter("a", permits=1, interval_seconds=9, client=client).acquire())
            first.do(lambda: bench.locks.Topic("thing", client=client).tell("a"))

    @pytest.mark.parametrize(
        ("kind", "rules"), [("Lock", f"{ACL} -publish"), ("FairLock", ACL.replace("&*payonce:*", "&other:*"))]
    )
    def test_without_publish_a_contended_release_says_so_and_is_done(
        self, bench: Bench, kind: str, rules: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = bench.actors(2)
        lock = bench.make(kind)
        with self.user(bench, *rules.split()) as client:
            denied = getattr(bench.locks, kind)("thing", client=client)
            first.do(lambda: denied.acquire(wait_seconds=0))
            waiting = second.begin(lambda: lock.acquire(wait_seconds=20))
            bench.waits(1)
            with pytest.raises(LockError, match="PUBLISH"):
                first.do(denied.release)
            assert waiting.result(30) is True  # it found it free when it looked, long before the lease's end
            assert first.do(lambda: denied.held) is False
            second.do(lock.release)


@pytest.mark.parametrize("made_by", [valkey.Valkey, valkey.asyncio.Valkey])
def test_a_client_of_valkey_py_outlives_a_flush_of_scripts(servers: Callable[[str], Any], made_by: Any) -> None:
    tasks = made_by is valkey.asyncio.Valkey
    with a_bench("Valkey", servers("Valkey"), tasks=tasks) as bench:
        actor, client = bench.actor(), made_by.from_url(bench.servers.url)
        lock = bench.locks.Lock("thing", client=client)
        for _ in range(2):
            assert actor.do(lambda: lock.acquire(wait_seconds=0)) is True
            actor.do(lock.release)
            bench.plain.script_flush()
        actor.do(bench.locks.close if tasks else client.close)
        if tasks:
            actor.do(client.aclose)
