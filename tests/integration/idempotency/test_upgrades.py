"""Upgrade of a ledger from before the squashed migrations: nothing is lost, and it serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import ConnectionHandler, IntegrityError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from idempotency.ledger.claiming import UNIQUE
from idempotency.models import ConsumedMessage, LedgerAttempt, LedgerEntry, LedgerEpoch
from tests.integration.test_upgrades import another_session, fresh_database

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

LEAN = import_module("idempotency.migrations.0002_lean_entry")
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

# what a schema may hold beside Django's list of migrations
LEFT_BEHIND = """
SELECT 'relation', relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'django_migrations%'
UNION ALL SELECT 'function', proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""

CONDITIONS = """
SELECT string_agg('(' || pg_get_expr(conbin, conrelid) || ') IS NOT FALSE', ' AND ')
FROM pg_constraint WHERE conrelid = 'idempotency_ledgerentry'::regclass AND contype = 'c'
"""
# entries of every combination of the values that the CHECKs distinguish
ENTRIES = """
SELECT * FROM unnest(ARRAY['running', 'uncertain', 'finished', 'other']) AS state, unnest(ARRAY['atomic', 'phased', 'other'])
    AS mode, unnest(ARRAY['', 'k']) AS key, unnest(ARRAY['', 's']) AS scope, unnest(ARRAY[0, 1, 2]) AS fence,
    unnest(ARRAY[NULL, 199, 200, 499, 500]) AS response_status, unnest(ARRAY[NULL, now()]) AS finished_at,
    unnest(ARRAY[NULL, now()]) AS purged_at, unnest(ARRAY[NULL, ''::bytea]) AS response_body,
    unnest(ARRAY[NULL, now()]) AS lease_until
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


def test_it_counts_as_reaped_when_it_is_upgraded(former: BaseDatabaseWrapper) -> None:
    """So that nobody is warned who reaped the hour before."""
    migrate()
    with former.cursor() as cursor:
        cursor.execute("SELECT now() - reaped_at < '1 hour', now() - since > '1 day' FROM idempotency_ledgerepoch")
        assert cursor.fetchall() == [(True, True)]


def test_its_schema_is_that_of_a_new_database() -> None:
    found = []
    for database in (fresh_database, database_of_before):
        with database() as wrapper:
            migrate()
            found.append(schema(wrapper))
    new, upgraded = found
    assert upgraded == new
    assert any("ledger_entry_is_whole t CHECK" in line for line in upgraded)


def test_a_new_ledger_has_an_epoch_of_its_own() -> None:
    epochs = set()
    for _ in range(2):
        with fresh_database():
            migrate()
            epochs.add(LedgerEpoch.objects.using("former").get().value)
    assert len(epochs) == 2


def test_who_leaves_keeps_nothing_of_it(former: BaseDatabaseWrapper) -> None:
    migrate()
    migrate("zero")
    with former.cursor() as cursor:
        cursor.execute(LEFT_BEHIND)
        assert cursor.fetchall() == []


class TestTheChecksBecomeOne:
    """At every moment an entry without its answer is refused, and a duplicate loses by the constraint's name."""

    def test_forwards_and_back(self, former: BaseDatabaseWrapper) -> None:
        before = schema(former)
        migrate()
        assert checks(former) == {LEAN.WHOLE.name}
        half_entries_are_refused(former)
        migrate(SQUASHED)
        assert schema(former) == before

    def test_the_one_takes_and_refuses_what_the_nine_did(self, former: BaseDatabaseWrapper) -> None:
        """So that processes of either version write entries meanwhile and afterwards."""
        nine = conditions(former)
        migrate()
        one = conditions(former)
        with former.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*), count(*) FILTER (WHERE {nine}), count(*) FILTER (WHERE ({nine}) <> ({one}))"
                f" FROM ({ENTRIES}) AS entry"
            )
            tried, taken, different = cursor.fetchone()
        assert (tried, different) == (4 * 3 * 2 * 2 * 3 * 5 * 2 * 2 * 2 * 2, 0)
        assert taken > 0

    def test_to_look_at_its_sql_changes_nothing(self, former: BaseDatabaseWrapper) -> None:
        written = StringIO()
        call_command("sqlmigrate", "idempotency", "0002", database="former", stdout=written)
        assert "CANNOT BE WRITTEN AS SQL" in written.getvalue()
        assert checks(former) == set(LEAN.FORMER)

    def test_a_reader_that_does_not_end_turns_it_away(
        self, former: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that requests do not queue up behind it."""
        monkeypatch.setattr(LEAN, "LOCK_WAIT", "20ms")
        with another_session(former) as reader:
            reader.execute("SELECT count(*) FROM idempotency_ledgerentry")
            with pytest.raises(OperationalError, match="lock timeout"):
                migrate()
        assert checks(former) == set(LEAN.FORMER)
        half_entries_are_refused(former)
        migrate()
        assert checks(former) == {LEAN.WHOLE.name}

    def test_killed_before_it_was_validated(self, former: BaseDatabaseWrapper) -> None:
        whole = LEAN.WHOLE.create_sql(LedgerEntry, former.schema_editor())
        with former.cursor() as cursor:
            cursor.execute(f"{whole} NOT VALID")
        half_entries_are_refused(former)
        migrate()
        assert checks(former) == {LEAN.WHOLE.name}
        with former.cursor() as cursor:
            cursor.execute("SELECT convalidated FROM pg_constraint WHERE conname = %s", [LEAN.WHOLE.name])
            assert cursor.fetchall() == [(True,)]


def test_a_database_of_another_kind_beside_the_ledgers_takes_its_tables_too(tmp_path: Path) -> None:
    beside = ConnectionHandler(
        {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "beside")}}
    )["default"]
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
    former = {model: [field.name for field in model._meta.fields if field.name != "reaped_at"] for model in MODELS}
    return [
        list(model._default_manager.using(wrapper.alias).order_by("pk").values(*names))
        for model, names in former.items()
    ]


def schema(wrapper: BaseDatabaseWrapper) -> list[str]:
    with wrapper.cursor() as cursor:
        cursor.execute(SCHEMA, [])
        return [line for (line,) in cursor.fetchall()]


def checks(wrapper: BaseDatabaseWrapper) -> set[str]:
    with wrapper.cursor() as cursor:
        return LEAN._checks(cursor)  # type: ignore[no-any-return]


def conditions(wrapper: BaseDatabaseWrapper) -> str:
    with wrapper.cursor() as cursor:
        cursor.execute(CONDITIONS)
        return str(cursor.fetchone()[0])


def half_entries_are_refused(former: BaseDatabaseWrapper) -> None:
    insert = (
        "INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence,"
        " response_headers) VALUES ('user:1 POST orders', %s, '', 'atomic', %s, '', '', 1, '{}')"
    )
    for key, state, refused in (("new", "finished", None), ("atomic", "running", UNIQUE)):
        with former.cursor() as cursor, pytest.raises(IntegrityError) as error:
            cursor.execute(insert, [key, state])
        name = error.value.__cause__.diag.constraint_name  # type: ignore[union-attr]
        assert name == refused or (refused is None and name in {LEAN.WHOLE.name, "ledger_finished_has_an_answer"})
