"""The commands of both apps end with a sentence and exit code 1, whatever goes away beneath them."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.conftest import database_away
from tests.processes import on_the_tests_database

ROOT = Path(__file__).parents[4]
COMMANDS = (
    ("idempotency", "show", "k"),
    ("idempotency", "reap"),
    ("idempotency", "complete"),
    ("idempotency", "apply"),
    ("idempotency", "forget-redis"),
    ("notifications", "show", "n"),
    ("reconcile",),
    ("bills", "export"),
)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_database_that_is_away_is_a_sentence(command: tuple[str, ...]) -> None:
    with database_away(), pytest.raises(CommandError, match="The database failed; run it again"):
        call_command(*command)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_output_that_nobody_reads_is_a_sentence(unbuffered: str) -> None:
    command = subprocess.Popen(
        [sys.executable, "manage.py", "bills", "export"],
        env=on_the_tests_database() | {"PYTHONUNBUFFERED": unbuffered},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    command.stdout.close()
    _, said = command.communicate(timeout=100)
    assert (said, command.returncode) == (
        "CommandError: The output was closed before the end; run it again.\n",
        1,
    )
