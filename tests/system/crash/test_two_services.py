"""Two services of ours, real processes and real HTTP: what one decides the other applies once, whichever is killed."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connections

from payments.models import Attempt, Delivery
from tests.integration.payments.conftest import (  # noqa: F401  fixtures
    channels,
    fold,
    mug,
    new_order,
    open_attempt,
    paid,
    refunded,
    shopper,
)
from tests.integration.payments.deliveries.conftest import pass_by
from tests.ports import free_port, is_free
from tests.processes import a_database, on_the_tests_database
from tests.running import until
from tests.sandbox import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

SECRETS = " ".join("whsec_" + base64.b64encode(os.urandom(32)).decode() for _ in range(2))
SERVE = """
import sys
import django
from django.conf import settings
settings.ROOT_URLCONF = "tests.system.crash.books"
django.setup()
from django.core.management import call_command
call_command("runserver", "--noreload", "--skip-checks", f"127.0.0.1:{sys.argv[1]}")
"""
# it dies where a process may: between the claim and the request, and between the answer and its record
SEND = """
import django
django.setup()
from payments.deliveries import sending
from tests.system.crash.books import die_once

attempt = sending._attempt

def mortal(session, name, endpoint, row):
    if row.sequence == 3:
        die_once(f"sender, before its request, {row.id}")
    answered = attempt(session, name, endpoint, row)
    if row.sequence == 2 and answered[0] == 200:
        die_once(f"sender, before its record, {row.id}")
    return answered

sending._attempt = mortal
sending.send_due("books")
"""


class Books:
    """The receiving service, with a database of its own, that is started again when it has died."""

    def __init__(self, database: str, deaths: Path) -> None:
        self.port, self.deaths = free_port(), deaths
        self.environment = {
            **on_the_tests_database(database),
            **{"PAYONCE_SECRETS": SECRETS.split(" ")[1], "DEATHS": str(deaths)},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def must_run(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-c", SERVE, str(self.port)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, cwd=ROOT, env=self.environment, **quiet)
        until(lambda: not is_free(self.port))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


@pytest.fixture
def books(transactional_db: None, tmp_path: Path) -> Iterator[Books]:
    connections.close_all()  # a database that is copied has no other session
    with a_database(like=connections["default"].settings_dict["NAME"]) as name:
        made = Books(name, tmp_path)
        yield made
        made.stop()


def test_what_is_decided_is_applied_once_though_both_are_killed(
    books: Books,
    open_attempt: Callable[..., Attempt],  # noqa: F811
    settings: object,
) -> None:
    endpoint = {"URL": f"http://127.0.0.1:{books.port}/hooks/payonce", "SECRETS": SECRETS}
    settings.PAYMENTS = {**settings.PAYMENTS, "WEBHOOKS": {"books": endpoint}}  # type: ignore[attr-defined]
    attempt = open_attempt()
    number = attempt.out_trade_no[:31]
    fold(paid(attempt), refunded(attempt, 90, f"{number}p"), refunded(attempt, 1900, f"{number}x"))
    sender = {
        **on_the_tests_database(),
        **{"WEBHOOKS": json.dumps({"books": endpoint}), "PAYONCE_SECRETS": "", "DEATHS": str(books.deaths)},
    }
    ends = []
    while Delivery.objects.exclude(status="delivered").exists():
        assert len(ends) < 30, list(Delivery.objects.values("sequence", "status", "log"))
        books.must_run()
        pass_by(3600)
        sent = subprocess.run([sys.executable, "-c", SEND], cwd=ROOT, env=sender, check=False, capture_output=True)
        ends.append(sent.returncode)
    with psycopg.connect(books.environment["DATABASE_URL"]) as theirs:
        noted = theirs.execute("SELECT operator, operator_id FROM payments_auditentry ORDER BY id").fetchall()
    assert noted == [(attempt.payment_id.hex, sequence) for sequence in "123"]
    assert list(Delivery.objects.order_by("sequence").values_list("attempts", flat=True)) == [2, 3, 2]
    deaths = [path.name.partition(",")[0] for path in books.deaths.iterdir()]
    assert (deaths.count("receiver"), deaths.count("sender"), ends.count(-9)) == (2, 2, 2)
