"""Upgrade of a ledger from before the squashed migrations: nothing is lost, and it serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from idempotency.ledger.claiming import UNIQUE
from idempotency.models import ConsumedMessage, LedgerAttempt, LedgerEntry, LedgerEpoch
from tests.integration.test_upgrades import another_session, fresh_database
from tests.schema import definitions

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

SINCE = import_module("idempotency.migrations.0002_squashed_0007_reaped_events")
SQUASHED = "0001_squashed_0006_no_tallies"
FORMER = import_module(f"idempotency.migrations.{SQUASHED}").Migration.replaces
DUMP = Path(__file__).resolve().parents[1] / "data" / "idempotency_2026_11_24.sql"
MODELS = (LedgerEntry, LedgerAttempt, ConsumedMessage, LedgerEpoch)

# what a schema may hold beside Django's list of migrations
LEFT_BEHIND = """
SELECT 'relation', relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'django_migrations%'
UNION ALL SELECT 'function', proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


@contextmanager
def database_of_before() -> Iterator[BaseDatabaseWrapper]:
    """A database of the last version before the squash, with rows of every kind."""
    with fresh_database() as wrapper:
        recorder = MigrationRecorder(wrapper)
        recorder.ensure_schema()
        for app, name in FORMER:
            recorder.record_applied(app, name)
        with wrapper.cursor() as cursor:
            cursor.execute(DUMP.read_text())
        yield wrapper


@pytest.fixture(scope="module")
def database(django_db_setup: None, django_db_blocker: Any) -> Iterator[BaseDatabaseWrapper]:
    with django_db_blocker.unblock(), database_of_before() as wrapper:
        yield wrapper


@pytest.fixture
def former(database: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
    """As before the upgrade, to which it goes back afterwards."""
    assert checks(database) == set(SINCE.FORMER)
    yield database
    migrate(SQUASHED)


def test_its_rows_stay_and_its_schema_is_that_of_a_new_database(former: BaseDatabaseWrapper) -> None:
    before = rows(former)
    migrate()
    assert rows(former) == before
    assert [len(found) for found in before] == [8, 7, 1, 1]
    with former.cursor() as theirs, connection.cursor() as ours:
        theirs.execute("SELECT now() - reaped_at < '1 hour', now() - since > '1 day' FROM idempotency_ledgerepoch")
        assert theirs.fetchall() == [(True, True)], "nobody is warned who reaped the hour before"
        assert definitions(theirs, "^idempotency") == definitions(ours, "^idempotency")


def test_who_leaves_keeps_nothing_and_each_new_ledger_has_an_epoch_of_its_own() -> None:
    epochs = set()
    with fresh_database("left") as wrapper, wrapper.cursor() as cursor:
        for _ in range(2):
            migrate("zero", database="left")
            cursor.execute(LEFT_BEHIND)
            assert cursor.fetchall() == []
            migrate(database="left")
            epochs.add(LedgerEpoch.objects.using("left").get().value)
    assert len(epochs) == 2


def test_a_reader_that_does_not_end_turns_it_away(
    former: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that requests do not queue up behind it; half an entry is refused before and after."""
    monkeypatch.setattr(SINCE, "LOCK_WAIT", "20ms")
    with another_session(former) as reader:
        reader.execute("SELECT count(*) FROM idempotency_ledgerentry")
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate()
    assert checks(former) == set(SINCE.FORMER)
    half_entries_are_refused(former)
    migrate()
    assert checks(former) == {SINCE.WHOLE.name}
    half_entries_are_refused(former)


def migrate(*target: str, database: str = "former") -> None:
    call_command("migrate", "idempotency", *target, database=database, verbosity=0)


def rows(wrapper: BaseDatabaseWrapper) -> list[list[dict[str, Any]]]:
    former = {model: [field.name for field in model._meta.fields if field.name != "reaped_at"] for model in MODELS}
    return [
        list(model._default_manager.using(wrapper.alias).order_by("pk").values(*names))
        for model, names in former.items()
    ]


def checks(wrapper: BaseDatabaseWrapper) -> set[str]:
    with wrapper.cursor() as cursor:
        found = wrapper.introspection.get_constraints(cursor, LedgerEntry._meta.db_table)
    return {name for name, constraint in found.items() if constraint["check"]}


def half_entries_are_refused(former: BaseDatabaseWrapper) -> None:
    insert = (
        "INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence,"
        " response_headers) VALUES ('user:1 POST orders', %s, '', 'atomic', %s, '', '', 1, '{}')"
    )
    for key, state, refused in (("new", "finished", None), ("atomic", "running", UNIQUE)):
        with former.cursor() as cursor, pytest.raises(IntegrityError) as error:
            cursor.execute(insert, [key, state])
        name = error.value.__cause__.diag.constraint_name  # type: ignore[union-attr]
        assert name == refused or (refused is None and name in {SINCE.WHOLE.name, "ledger_finished_has_an_answer"})
