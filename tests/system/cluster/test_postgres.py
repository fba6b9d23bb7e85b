"""A primary lost under load, its standby promoted, and PgBouncer before both."""

import contextlib
import threading
from pathlib import Path

import psycopg

from shop.devserver.guardian import Guardian
from tests.running import until
from tests.system.cluster.buyers import Buyers
from tests.system.cluster.conftest import Deploy
from tests.system.cluster.deployment import start_pgbouncer
from tests.system.cluster.postgres_pair import Pair
from tests.system.cluster.test_web import buy


def test_no_acknowledged_order_is_lost_with_the_primary(
    deploy: Deploy, guardian: Guardian, open_folder: Path
) -> None:
    pair = Pair(guardian, open_folder / "pair")
    deployment = deploy(database_url=pair.url)
    with Buyers(deployment) as buyers:
        buyers.buy_more(100)
        pair.kill_primary()
        pair.promote()
        buyers.buy_more(100)
    buyers.settle()
    with pair.connect() as connection:
        taken = connection.execute("SELECT 100000 - stock FROM shop_product WHERE sku = 'mug'").fetchone()
    assert taken == (len(buyers.placed),)


def test_a_purchase_behind_pgbouncer(
    deploy: Deploy, database_url: str, guardian: Guardian, open_folder: Path
) -> None:
    pooled = start_pgbouncer(guardian, open_folder / "pgbouncer", database_url)
    deployment = deploy(
        database_url=f"{pooled}&DISABLE_SERVER_SIDE_CURSORS=true", worker_database_url=database_url
    )
    with Buyers(deployment) as buyers:
        buyers.buy_more(60)
        deployment.kill_web(0)
        buyers.buy_more(60)
    buyers.settle()
    deployment.start_web(0)
    buy(deployment)


def test_a_caller_of_a_full_pooler_is_refused(database_url: str, guardian: Guardian, open_folder: Path) -> None:
    pooled = start_pgbouncer(guardian, open_folder / "pgbouncer", database_url)
    refused: list[psycopg.Error] = []

    def ask() -> None:
        try:
            psycopg.connect(pooled).execute("SELECT 1")
        except psycopg.OperationalError as error:
            refused.append(error)

    with contextlib.ExitStack() as stack:
        for _ in range(20):  # as many as the pool has
            stack.enter_context(psycopg.connect(pooled)).execute("SELECT 1")
        threading.Thread(target=ask, daemon=True).start()
        until(lambda: refused, 40)
    assert "query_wait_timeout" in str(refused[0])
