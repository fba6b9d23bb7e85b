"""Behind PgBouncer: what a transaction has works there; what a session has is refused, or not used."""

import asyncio
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from idempotency.locks.errors import LockError, LockTimeout
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock, transaction_lock
from idempotency.postgres import statements
from shop.devserver.guardian import Guardian
from tests.integration.idempotency.locks.actors import until

pytestmark = pytest.mark.django_db(transaction=True)

_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def answers(path: Path) -> bool:
    """Whether someone listens there; the file is made a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture(params=["transaction", "session"])
def pooled(
    request: pytest.FixtureRequest, transactional_db: None, open_folder: Path, guardian: Guardian
) -> Iterator[str]:
    """An alias that leads through PgBouncer, with one connection to the database where it pools by transaction."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer on this machine; get it with: apt-get install pgbouncer")
    given = connection.get_connection_params()
    server = {name: given[name] for name in ("host", "port", "dbname", "user", "password") if name in given}
    place = Path(given.get("host", "/"))
    user = place.owner() if os.geteuid() == 0 and place.is_dir() else ("nobody" if os.geteuid() == 0 else None)
    if user is not None:
        shutil.chown(open_folder, user)
    settings = open_folder / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"pooled = {' '.join(f'{name}={value}' for name, value in server.items())}\n"
        "[pgbouncer]\n"
        f"unix_socket_dir = {open_folder}\nlisten_port = 6432\nauth_type = any\n"
        f"pool_mode = {request.param}\ndefault_pool_size = {1 if request.param == 'transaction' else 5}\n"
        "ignore_startup_parameters = options,extra_float_digits\n"
    )
    process = guardian.start([program, str(settings)], log=open_folder / "pgbouncer.log", user=user)
    until(lambda: answers(open_folder / ".s.PGSQL.6432") or process.poll() is not None)
    assert process.poll() is None, (open_folder / "pgbouncer.log").read_text()
    wrapper = connection.copy(alias="pooled")
    wrapper.settings_dict |= {"HOST": str(open_folder), "PORT": "6432", "NAME": "pooled"}
    connections["pooled"] = wrapper
    yield request.param
    wrapper.close()
    del connections["pooled"]


def test_a_session_behind_a_pooler_is_refused(pooled: str) -> None:
    parameters = connections["pooled"].get_connection_params()
    with (
        psycopg.connect(**parameters, autocommit=True) as first,
        psycopg.connect(**parameters, autocommit=True) as second,
    ):
        both = [each.execute("SELECT pg_try_advisory_lock(1)").fetchone() for each in (first, second)]
        if pooled == "transaction":
            assert both == [(True,), (True,)]  # the danger itself
        first.execute("SELECT pg_advisory_unlock_all()")
    with pytest.raises(LockError, match="transaction_lock"):
        AdvisoryLock("till", using="pooled").acquire()

    async def refused() -> None:
        with pytest.raises(LockError, match="transaction_lock"):
            await AsyncAdvisoryLock("till", using="pooled").acquire()
        connections.close_all()

    asyncio.run(_with_alias(connections["pooled"], refused))
    with connection.cursor() as cursor:
        cursor.execute(_LOCKS)
        assert cursor.fetchone() == (0,)


async def _with_alias(wrapper: Any, job: Callable[[], Any]) -> None:
    connections["pooled"] = wrapper
    await job()


def test_a_lock_of_a_transaction_works_behind_a_pooler(pooled: str) -> None:
    with transaction.atomic(using="pooled"):
        transaction_lock("till", using="pooled", wait_seconds=20)
        with transaction.atomic(), pytest.raises(LockTimeout):
            transaction_lock("till", wait_seconds=0)
    with transaction.atomic():
        transaction_lock("till", wait_seconds=0)


def test_no_plan_is_kept_behind_a_pooler(pooled: str) -> None:
    parameters = connections["pooled"].get_connection_params()
    with psycopg.connect(**parameters) as behind:
        for _ in range(statements.USES + 2):
            assert statements.prepared_texts(behind, ["SELECT %s"]) == ["SELECT %s"]
        assert behind.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
