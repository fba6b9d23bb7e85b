"""A database that stopped between the migrations that were squashed: refused, with what to do first."""

from importlib import import_module

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


def test_it_is_refused_before_anything_changes() -> None:
    """Django itself applies what comes after, to tables of before, and ends somewhere with a traceback."""
    with fresh_database() as wrapper:
        check()
        recorder = MigrationRecorder(wrapper)
        recorder.ensure_schema()
        for app, name in SQUASHED.items():
            *before, last = import_module(f"{app}.migrations.{name}").Migration.replaces
            for stopped in before:
                recorder.record_applied(*stopped)
                if stopped in (before[0], before[-1]):
                    applied = set(recorder.applied_migrations())
                    sentence = (
                        rf"'former' stopped at {app}\.{stopped[1]}.*First run `migrate` of.*version of 2026-11-24"
                    )
                    with pytest.raises(SystemCheckError, match=sentence):  # as from the command line
                        call_command("migrate", database="former", verbosity=0, skip_checks=False)
                    assert set(recorder.applied_migrations()) == applied
            recorder.record_applied(*last)
            check()


def check() -> None:
    call_command("check", databases=["former"], tags=["database"])
