"""Processes that the tests start or stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from django.db import connection

from tests.running import until
from tests.sandbox import ROOT


def on_the_tests_database(name: str | None = None) -> dict[str, str]:
    """Build a process's environment with the tests' settings and database, or that of `name`."""
    path = f"/{name or connection.settings_dict['NAME']}"
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=path).geturl()
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": url}


@contextmanager
def a_database(*, like: str = "template1") -> Iterator[str]:
    """Make a database on the tests' server, `like` another one that nobody uses; its name."""
    name = f"of_a_test_{uuid4().hex[:12]}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}"')
        try:
            yield name
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def on_its_own(statement: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a statement on the tests' database in a process that ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import django; django.setup(); {statement}"],
        cwd=ROOT,
        env=on_the_tests_database(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stand_still(process: int) -> None:
    """Stop a process, and return when none of its threads runs."""
    os.kill(process, signal.SIGSTOP)
    states = Path(f"/proc/{process}/task").glob
    until(lambda: all(_state_of(task) in "tTZX" for task in states("*")))


def _state_of(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "X"  # it has ended
