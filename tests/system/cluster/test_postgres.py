"""The primary is lost under load, its synchronous standby promoted; and web processes behind PgBouncer."""

import contextlib
import os
import shutil
import threading
from pathlib import Path
from string import Template

import psycopg
import pytest

from shop.devserver.guardian import Guardian
from tests.running import until
from tests.system.cluster.buyers import Buyers
from tests.system.cluster.conftest import Deploy
from tests.system.cluster.deployment import DEPLOY
from tests.system.cluster.postgres_pair import Pair
from tests.system.cluster.test_web import buy


def test_no_acknowledged_order_is_lost_with_the_primary(deploy: Deploy, guardian: Guardian, folder: Path) -> None:
    pair = Pair(guardian, folder / "pair")
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


def test_a_purchase_behind_pgbouncer(deploy: Deploy, database_url: str, guardian: Guardian, folder: Path) -> None:
    pooled = start_pgbouncer(guardian, folder / "pgbouncer", database_url)
    deployment = deploy(database_url=pooled, worker_database_url=database_url)
    with Buyers(deployment) as buyers:
        buyers.buy_more(60)
        deployment.kill_web(0)
        buyers.buy_more(60)
    buyers.settle()
    deployment.start_web(0)
    buy(deployment)


def test_a_caller_of_a_full_pooler_is_refused(database_url: str, guardian: Guardian, folder: Path) -> None:
    pooled = start_pgbouncer(guardian, folder / "pgbouncer", database_url).partition("&DISABLE")[0]
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


def start_pgbouncer(guardian: Guardian, folder: Path, database_url: str) -> str:
    """PgBouncer with deploy's settings, pooling by transaction; its address."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer on this machine; get it with: apt-get install pgbouncer")
    folder.mkdir()
    parameters = psycopg.conninfo.conninfo_to_dict(database_url)
    sockets = Path(str(parameters["host"]))
    user = sockets.owner() if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        shutil.chown(folder, user, user)
    server = f"host={sockets} user=postgres"
    template = Template((DEPLOY / "pgbouncer" / "pgbouncer.ini.template").read_text())
    text = template.substitute(PAYONCE_DATABASE=server, PAYONCE_SOCKETS=folder)
    settings = folder / "pgbouncer.ini"
    settings.write_text(text.replace("dbname=payonce", f"dbname={parameters['dbname']}"))
    guardian.start([program, str(settings)], log=folder.parent / "pgbouncer.log", user=user)
    url = f"postgresql://postgres@/payonce?host={folder}&port=6432"

    def answers() -> bool:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    until(answers)
    return f"{url}&DISABLE_SERVER_SIDE_CURSORS=true"
