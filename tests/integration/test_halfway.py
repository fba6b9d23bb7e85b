"""A database that stopped between the migrations that were squashed: refused, with what to do first."""

from importlib import import_module
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db.migrations.recorder import MigrationRecorder

from tests.integration.test_upgrades import fresh_database

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

SQUASHED = {
    "idempotency": "0001_squashed_0006_no_tallies",
    "payments": "0001_squashed_0016_words",
    "shop": "0001_squashed_0007_orders_stay",
}


@pytest.mark.parametrize("app", SQUASHED)
def test_it_is_refused_before_anything_changes(app: str) -> None:
    """Django itself applies what comes after, to tables of before, and ends somewhere with a traceback."""
    replaced: list[Any] = import_module(f"{app}.migrations.{SQUASHED[app]}").Migration.replaces
    with fresh_database() as wrapper:
        recorder = MigrationRecorder(wrapper)
        recorder.ensure_schema()
        for stopped in replaced[:-1]:
            recorder.record_applied(*stopped)
            before = set(recorder.applied_migrations())
            sentence = rf"'former' stopped at {app}\.{stopped[1]}.*First run `migrate` of.*version of 2026-11-24"
            with pytest.raises(SystemCheckError, match=sentence):
                migrate()
            assert set(recorder.applied_migrations()) == before
        recorder.record_applied(*replaced[-1])
        call_command("check", databases=["former"], tags=["database"])


def test_a_new_database_and_one_brought_forward_pass() -> None:
    with fresh_database():
        migrate()
        migrate()


def migrate() -> None:
    """Migrate as the command line does, with its checks."""
    call_command("migrate", database="former", verbosity=0, skip_checks=False)
