"""The stores that the contract is kept with, each as a project would configure it.

A store is servers (`tests.redis_topologies`) and the settings that lead to them; those of a Cluster and of Sentinels
are docs/how-to/connect-redis.md's. Sockets time out late here: a busy machine must not look like a broken Redis.
"""

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.core.cache import caches
from django.test import override_settings
from redis.cluster import RedisCluster

from idempotency.redis import fastpath
from shop.devserver.guardian import Guardian
from tests import pages
from tests.redis_topologies import SERVICE, Cluster, Sentinels, Single, Topology, newer_redis, valkey_program

TIMEOUTS = {"socket_timeout": 30, "socket_connect_timeout": 30}
CLUSTER, SENTINEL = (
    re.sub(r"(?<=[ =])0\.2", "30", block) for block in pages.blocks("docs/how-to/connect-redis.md")
)

_cluster_ports: list[int] = []


def cluster_client() -> RedisCluster:
    """What `IDEMPOTENCY["REDIS"]` names: the page's function, with our nodes."""
    nodes = [f'ClusterNode("127.0.0.1", {port})' for port in _cluster_ports]
    client: RedisCluster = pages.run(re.sub(r"\[ClusterNode.*\]", f"[{', '.join(nodes)}]", CLUSTER))["cluster"]()
    return client


class Store:
    """No Redis at all, and what every other store has in common with that.

    Attributes:
        keeps: whether there is Redis, so that replays may come from it.
        disturbed: the test that has it has killed some of it, or changed its order.
        whole: it works as it did in the beginning; if not it is started afresh for the next test.
    """

    keeps = False
    disturbed = False
    whole = True

    @contextlib.contextmanager
    def in_force(self, **idempotency: Any) -> Iterator[None]:
        """Django's settings lead here, with these keys of `IDEMPOTENCY` beside."""
        with override_settings(IDEMPOTENCY={**self.idempotency(), **idempotency}, **self.others()):
            yield

    def idempotency(self) -> dict[str, Any]:
        return {"REDIS": None}

    def others(self) -> dict[str, Any]:
        """Settings beside `IDEMPOTENCY`."""
        return {}

    def flush(self) -> None:
        """Everything kept is forgotten."""

    def kill(self) -> None:
        """All of it is gone without a word."""

    def mend(self) -> None:
        """New empty servers at the same addresses."""

    def close(self) -> None:
        """At the session's end."""

    def keys(self) -> set[bytes]:
        return set()

    def listened_to(self) -> bool:
        """Whether a duplicate waits for a message; always True where nobody can know."""
        return True


class Running(Store):
    """Servers, started when the first test wants them."""

    topology: Any
    keeps = True

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        topology.start()

    def disturb(self) -> None:
        self.disturbed, self.whole = True, False

    def flush(self) -> None:
        self.topology.flush()

    def kill(self) -> None:
        self.disturb()
        self.topology.kill()

    def mend(self) -> None:
        self.topology.stop()
        self.topology.start()
        self.whole = True

    def keys(self) -> set[bytes]:
        found: set[bytes] = self.topology.keys()
        return found

    def listened_to(self) -> bool:
        return bool(self.topology.listened_to())

    def close(self) -> None:
        self.topology.stop()


class ByAlias(Running):
    """A django-redis cache."""

    location: str

    def idempotency(self) -> dict[str, Any]:
        return {"REDIS": "default"}

    def others(self) -> dict[str, Any]:
        options = {name.upper(): seconds for name, seconds in TIMEOUTS.items()}
        options["CONNECTION_POOL_KWARGS"] = {"max_connections": 64, "retry": None}
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": self.location}
        return {"CACHES": {"default": {**cache, "OPTIONS": {**options, **self.options()}}}}

    def options(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        with self.in_force():
            caches["default"].client.get_client().connection_pool.disconnect()
        super().close()


class OneServer(ByAlias):
    topology: Single

    @property
    def location(self) -> str:  # type: ignore[override]
        return self.topology.url


class BehindSentinels(ByAlias):
    topology: Sentinels
    location = f"redis://{SERVICE}/0"

    def options(self) -> dict[str, Any]:
        written: dict[str, Any] = ast.literal_eval(SENTINEL)
        return {**written, "SENTINELS": [("127.0.0.1", port) for port in self.topology.sentinel_ports]}

    def fail_over(self) -> None:
        self.disturb()
        self.topology.fail_over()

    def demote(self) -> None:
        self.topology.demote()

    def kill_master(self) -> None:
        self.disturb()
        self.topology.kill_master()


class Clustered(Running):
    topology: Cluster

    def __init__(self, topology: Cluster) -> None:
        super().__init__(topology)
        _cluster_ports[:] = topology.ports

    def idempotency(self) -> dict[str, Any]:
        return {"REDIS": f"{__name__}.cluster_client"}

    def kill_owner(self, key: str) -> None:
        self.disturb()
        self.topology.kill_one(self.topology.owner_of(key))

    def close(self) -> None:
        with self.in_force():
            fastpath.client().close()
        fastpath._client_of.cache_clear()
        super().close()


STORES: dict[str, Callable[[Guardian, Path], Store]] = {
    "no Redis": lambda guardian, folder: Store(),
    "Redis": lambda guardian, folder: OneServer(Single(guardian, folder / "redis")),
    "Redis Cluster": lambda guardian, folder: Clustered(
        Cluster(guardian, folder / "cluster", program=newer_redis(folder))
    ),
    "Sentinel": lambda guardian, folder: BehindSentinels(Sentinels(guardian, folder / "sentinel")),
}
if valkey_program() is not None:
    STORES["Valkey"] = lambda guardian, folder: OneServer(
        Single(guardian, folder / "valkey", program=valkey_program())
    )
