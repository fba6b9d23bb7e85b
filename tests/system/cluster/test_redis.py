"""The shop over a Redis Cluster of six and over Sentinels: the master is killed under load."""

from collections.abc import Callable
from pathlib import Path

from shop.devserver.guardian import Guardian
from tests.redis_topologies import SERVICE, Cluster, Sentinels
from tests.running import until
from tests.system.cluster.buyers import Buyers
from tests.system.cluster.conftest import Deploy


def bought_beside(deploy: Deploy, database_url: str, redis_url: str, fail: Callable[[], object]) -> None:
    deployment = deploy(database_url=database_url, redis_url=redis_url)
    with Buyers(deployment) as buyers:
        buyers.buy_more(50)
        fail()
        buyers.buy_more(100)
    buyers.settle()
    with deployment.api() as client:
        # each process stays away from a Redis that has failed it, for as long as its breaker is open
        until(lambda: client.get("/readyz").json()["redis"])


def test_a_master_of_the_cluster_is_killed(
    deploy: Deploy, database_url: str, guardian: Guardian, open_folder: Path
) -> None:
    cluster = Cluster(guardian, open_folder / "redis", replicas=True)
    cluster.start()
    nodes = ",".join(f"127.0.0.1:{port}" for port in cluster.ports)

    def fail() -> None:
        cluster.kill_one(cluster.ports[0])
        cluster.until_taken_over()

    bought_beside(deploy, database_url, f"redis+cluster://{nodes}", fail)


def test_the_sentinels_master_is_killed(
    deploy: Deploy, database_url: str, guardian: Guardian, open_folder: Path
) -> None:
    sentinels = Sentinels(guardian, open_folder / "redis")
    sentinels.start()
    nodes = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    bought_beside(deploy, database_url, f"redis+sentinel://{nodes}/{SERVICE}/0", sentinels.kill_master)
