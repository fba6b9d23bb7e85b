"""A ledger of before the migrations were squashed, brought forward: nothing is lost, and it serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import ConnectionHandler, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from idempotency.models import ConsumedMessage, LedgerAttempt, LedgerEntry, LedgerEpoch
from tests.integration.test_upgrades import fresh_database

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

SQUASHED = "0001_squashed_0006_no_tallies"
FORMER = import_module(f"idempotency.migrations.{SQUASHED}").Migration.replaces
DUMP = Path(__file__).resolve().parents[1] / "data" / "idempotency_2026_11_24.sql"
MODELS = (LedgerEntry, LedgerAttempt, ConsumedMessage, LedgerEpoch)

# columns, constraints and indexes of the app, in any order of columns
SCHEMA = """
SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
    pg_get_expr(adbin, adrelid))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relkind = 'r' AND relname LIKE 'idempotency%%' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT concat_ws(' ', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid))
FROM pg_constraint WHERE conrelid::regclass::text LIKE 'idempotency%%'
UNION ALL
SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'idempotency%%'
ORDER BY 1
"""


@contextmanager
def database_of_before() -> Iterator[BaseDatabaseWrapper]:
    """A database under the alias `former`, as the last version before the squash left it, with rows of every kind."""
    with fresh_database() as wrapper:
        recorder = MigrationRecorder(wrapper)
        recorder.ensure_schema()
        for app, name in FORMER:
            recorder.record_applied(app, name)
        with wrapper.cursor() as cursor:
            cursor.execute(DUMP.read_text())
        yield wrapper


@pytest.fixture
def former() -> Iterator[BaseDatabaseWrapper]:
    with database_of_before() as wrapper:
        yield wrapper


def test_its_rows_stay_as_they_are(former: BaseDatabaseWrapper) -> None:
    before = rows(former)
    migrate()
    assert rows(former) == before
    assert [len(found) for found in before] == [8, 7, 1, 1]


def test_its_schema_is_that_of_a_new_database() -> None:
    found = []
    for database in (fresh_database, database_of_before):
        with database() as wrapper:
            migrate()
            found.append(schema(wrapper))
    new, upgraded = found
    assert upgraded == new


def test_a_new_ledger_has_an_epoch_of_its_own() -> None:
    epochs = set()
    for _ in range(2):
        with fresh_database():
            migrate()
            epochs.add(LedgerEpoch.objects.using("former").get().value)
    assert len(epochs) == 2


def test_a_database_of_another_kind_beside_the_ledgers_takes_its_tables_too() -> None:
    beside = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})[
        "default"
    ]
    beside.alias = "beside"
    connections["beside"] = beside
    try:
        call_command("migrate", "idempotency", database="beside", verbosity=0)
        assert LedgerEntry._meta.db_table in beside.introspection.table_names()
    finally:
        beside.close()
        del connections["beside"]


def migrate(*target: str) -> None:
    call_command("migrate", "idempotency", *target, database="former", verbosity=0)


def rows(wrapper: BaseDatabaseWrapper) -> list[list[dict[str, Any]]]:
    return [list(model._default_manager.using(wrapper.alias).order_by("pk").values()) for model in MODELS]


def schema(wrapper: BaseDatabaseWrapper) -> list[str]:
    with wrapper.cursor() as cursor:
        cursor.execute(SCHEMA, [])
        return [line for (line,) in cursor.fetchall()]
