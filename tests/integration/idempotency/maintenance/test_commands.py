"""Commands of both apps end with a sentence and exit code 1, whatever goes away."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from tests.conftest import database_away
from tests.processes import on_the_tests_database
from tests.running import until

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[4]
COMMANDS = (
    ("idempotency", "show", "k"),
    ("idempotency", "reap"),
    ("idempotency", "complete"),
    ("idempotency", "apply"),
    ("idempotency", "forget-redis"),
    ("notifications", "replay", "n", "--operator", "nobody", "--note", "why"),
    ("reconcile",),
    ("bills", "export"),
)


def start(*command: str, **options: Any) -> subprocess.Popen[str]:
    whole = [sys.executable, "manage.py", *command]
    return subprocess.Popen(whole, cwd=ROOT, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_database_that_is_away_is_a_sentence(command: tuple[str, ...]) -> None:
    with database_away(), pytest.raises(CommandError, match="The database failed; run it again"):
        call_command(*command)


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_output_that_nobody_reads_is_a_sentence(unbuffered: str) -> None:
    environment = on_the_tests_database() | {"PYTHONUNBUFFERED": unbuffered}
    command = start("bills", "export", env=environment, stdout=subprocess.PIPE)
    assert command.stdout is not None
    command.stdout.close()
    _, said = command.communicate(timeout=100)
    assert (said, command.returncode) == ("CommandError: The output was closed before the end; run it again.\n", 1)


@pytest.mark.parametrize(
    ("command", "table"),
    [(("idempotency", "reap"), "idempotency_ledgerentry"), (("reconcile",), "payments_attempt")],
)
def test_ctrl_c_is_a_sentence(command: tuple[str, ...], table: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {table}")
        own_signal = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        stopped = start(*command, env=on_the_tests_database(), preexec_fn=own_signal)

        def waits() -> bool:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted", [table])
            return stopped.poll() is not None or bool(cursor.fetchone()[0])

        until(waits)
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate(timeout=100)
    assert (said, stopped.returncode) == ("Stopped before the end; run it again.\n", 130)


def test_a_missing_table_is_a_sentence() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE payments_attempt RENAME TO elsewhere")
        try:
            with pytest.raises(CommandError, match=r"A table is missing: run `manage\.py migrate`"):
                call_command("reconcile")
        finally:
            cursor.execute("ALTER TABLE elsewhere RENAME TO payments_attempt")
