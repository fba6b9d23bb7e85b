"""The locks' contract runs over every kind of server, on threads and on asyncio; fixture `bench` has both."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from idempotency import locks
from idempotency.locks import aio
from idempotency.locks.engine import holds
from idempotency.locks.engine.hub import tagged
from shop.devserver.guardian import Guardian
from tests.conftest import a_folder_of_its_own
from tests.integration.idempotency.locks.actors import Actor, TaskActor, a_loop, until
from tests.redis_topologies import SERVICE, Cluster, Sentinels, Single, Topology, valkey_program

TIMEOUTS: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 5}

KINDS: dict[str, Callable[..., Topology]] = {
    "Redis": Single,
    "Valkey": lambda guardian, folder: Single(guardian, folder, program=valkey_program()),
    "Cluster": Cluster,
    "Sentinel": Sentinels,
}


def client_of(kind: str, servers: Any) -> Any:
    """A client of threads."""
    if kind == "Cluster":
        nodes = [ClusterNode("127.0.0.1", port) for port in servers.ports]
        return RedisCluster(startup_nodes=nodes, **TIMEOUTS)
    if kind == "Sentinel":
        addresses = [("127.0.0.1", port) for port in servers.sentinel_ports]
        return redis.Sentinel(addresses, sentinel_kwargs=TIMEOUTS).master_for(SERVICE, **TIMEOUTS)
    return redis.Redis.from_url(servers.url, retry=Retry(NoBackoff(), 0), **TIMEOUTS)


def async_client_of(kind: str, servers: Any) -> Any:
    """A client of asyncio; to be made in its loop."""
    if kind == "Cluster":
        nodes = [AsyncClusterNode("127.0.0.1", port) for port in servers.ports]
        return redis.asyncio.RedisCluster(startup_nodes=nodes, **TIMEOUTS)
    if kind == "Sentinel":
        addresses = [("127.0.0.1", port) for port in servers.sentinel_ports]
        sentinel = redis.asyncio.Sentinel(addresses, sentinel_kwargs=TIMEOUTS)
        return sentinel.master_for(SERVICE, **TIMEOUTS)
    return redis.asyncio.Redis.from_url(servers.url, **TIMEOUTS)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Any]]:
    """The session's servers by kind, started when they are first asked for."""
    guardian = Guardian()
    started: dict[str, Topology] = {}
    with a_folder_of_its_own() as folder:

        def named(kind: str) -> Topology:
            if kind not in started:
                started[kind] = KINDS[kind](guardian, folder / kind)
                started[kind].start()
                started[kind].client = client_of(kind, started[kind])  # type: ignore[attr-defined]
            return started[kind]

        try:
            yield named
        finally:
            for servers in started.values():
                servers.client.close()  # type: ignore[attr-defined]
            guardian.stop_all()


class Bench:
    """One face over one kind of server.

    Attributes:
        locks: the module with the face's classes.
        client: for them; `plain` is one of threads beside it.
    """

    def __init__(self, kind: str, servers: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.kind, self.servers, self.loop = kind, servers, loop
        self.plain = servers.client
        self._actors: list[Any] = []
        if loop is None:
            self.locks: Any = locks
            self.client = self.plain
        else:
            self.locks = aio
            self.client = self.run(self._async_client())

    async def _async_client(self) -> Any:
        return async_client_of(self.kind, self.servers)

    def run(self, coroutine: Any) -> Any:
        """Await it in the loop."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def actor(self) -> Any:
        """A new holder."""
        self._actors.append(Actor() if self.loop is None else TaskActor(self.loop))
        return self._actors[-1]

    def actors(self, count: int) -> list[Any]:
        return [self.actor() for _ in range(count)]

    def make(self, kind: str, name: str = "thing", **settings: Any) -> Any:
        """A lock of this face."""
        return getattr(self.locks, kind)(name, client=self.client, **settings)

    def queue(self, name: str = "thing", kind: str = "lock") -> int:
        """How many wait."""
        return int(self.plain.zcard(f"{tagged(kind, name)}:queue"))

    def waits(self, count: int, name: str = "thing", kind: str = "lock") -> None:
        """Until `count` wait."""
        until(lambda: self.queue(name, kind) == count, f"{count} wait, {self.queue(name, kind)} do")

    def forget(self) -> None:
        """The server forgets everything, scripts included."""
        self.servers.flush()

    def close(self) -> None:
        for actor in self._actors:
            actor.end()
        if self.loop is not None:
            self.run(_stopped(self.client))


async def _stopped(client: Any) -> None:
    await aio.close()
    await client.aclose()
    if sentinel := getattr(getattr(client, "connection_pool", None), "sentinel_manager", None):
        for each in sentinel.sentinels:
            await each.aclose()


@contextlib.contextmanager
def a_bench(kind: str, servers: Any, *, tasks: bool) -> Iterator[Bench]:
    servers.flush()
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(a_loop()) if tasks else None
        bench = Bench(kind, servers, loop)
        try:
            yield bench
        finally:
            bench.close()


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, servers: Callable[[str], Any], face: str) -> Iterator[Bench]:
    """Every kind of server."""
    with a_bench(request.param, servers(request.param), tasks=face == "asyncio") as made:
        yield made


@pytest.fixture
def one(servers: Callable[[str], Any], face: str) -> Iterator[Bench]:
    """A single Redis, for what does not depend on the kind."""
    with a_bench("Redis", servers("Redis"), tasks=face == "asyncio") as made:
        yield made


@pytest.fixture
def early_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stands still for seconds keeps its lease of 30, and none waits for a third of that."""
    monkeypatch.setattr(holds, "RENEW_AFTER", 0.01)
