"""Behind PgBouncer a transaction's locks work; a session's are refused or not used."""

import asyncio
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
from tests.emptying import rows
from tests.processes import on_the_tests_database
from tests.system.cluster.deployment import start_pgbouncer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["transaction", "session"])
def pooled(
    request: pytest.FixtureRequest, transactional_db: None, open_folder: Path, guardian: Guardian
) -> Iterator[str]:
    """An alias that leads through PgBouncer; one server connection if by transaction."""
    folder, size = open_folder / "pgbouncer", 1 if request.param == "transaction" else 5
    database = on_the_tests_database()["DATABASE_URL"]
    start_pgbouncer(guardian, folder, database, pool_mode=request.param, default_pool_size=size)
    wrapper = connection.copy(alias="pooled")
    wrapper.settings_dict |= {"HOST": str(folder), "PORT": "6432", "NAME": "payonce"}
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
    assert rows("SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []


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
