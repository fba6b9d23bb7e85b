"""PostgreSQL's log has no statement: our files say so, and a check warns of others."""

import re

import pytest
from django.db import connection

from idempotency.checks.ledger import QUIET, check_server_log
from tests.sandbox import ROOT

DELIVERED = ("deploy/postgresql/primary.conf", "compose.yaml")


@pytest.mark.django_db
@pytest.mark.parametrize("file", DELIVERED)
def test_what_is_delivered_quiets_a_server_of_the_defaults(file: str) -> None:
    said = re.findall(r"(log_\w+) ?= ?(\w+)", (ROOT / file).read_text())
    with connection.cursor() as cursor:
        for name in QUIET:
            if not name.startswith("auto_explain"):
                cursor.execute("SELECT set_config(name, boot_val, true) FROM pg_settings WHERE name = %s", [name])
        assert check_server_log(None, databases=["default"]) != []
        for name, value in said:
            if name in QUIET:
                cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        assert check_server_log(None, databases=["default"]) == []
