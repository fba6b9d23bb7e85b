"""A project whose ledger and orders are not in the default database."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.test_upgrades import fresh_database


@pytest.mark.usefixtures("transactional_db")  # the database is no one else's, but the way to it is
def test_keyed_calls_have_their_transactions_there(tmp_path: Path) -> None:
    with fresh_database() as database:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
            "ORDERS": urlsplit(os.environ["DATABASE_URL"])
            ._replace(path=f"/{database.settings_dict['NAME']}")
            .geturl(),
            "SQLITE": str(tmp_path / "default.sqlite3"),
            "REDIS": os.environ["REDIS_URL"],
        }
        command = [sys.executable, "-m", "tests.integration.idempotency.other_database"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
