"""Reaping and completing from any scheduler, and the warning without one."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import django
import procrastinate
import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test import override_settings
from procrastinate.testing import InMemoryConnector
from prometheus_client import CollectorRegistry, generate_latest

from idempotency import ledger
from idempotency.checks.ledger import OVERDUE_SECONDS, check_reaping
from idempotency.maintenance import complete_stalled, reap
from idempotency.models import ConsumedMessage, LedgerEntry, LedgerEpoch
from idempotency.observability.metrics import LedgerCollector
from tests import pages
from tests.integration.idempotency.conftest import Caller, end_the_lease
from tests.integration.idempotency.urls import STEPS, Killed
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

PAGE = "docs/how-to/reap-from-a-scheduler.md"
CELERY, PROCRASTINATE = pages.blocks(PAGE)
TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"  # before Django 6 a package of its own
DAY = timedelta(days=1)


@pytest.fixture
def stalled(caller: Caller, the_dead_drop_nothing: None) -> int:
    """Six calls whose processes died half-way."""
    STEPS["die_at"] = "charged"
    for number in range(6):
        with pytest.raises(Killed):
            caller.post("/steps", key=f"k{number}", body={"amount": 5})
    end_the_lease()
    STEPS["die_at"] = ""
    return 6


def never_reaped_since(age: timedelta) -> None:
    """The ledger was made so long ago."""
    ledger.renew_epoch()  # the tests before have emptied its table
    LedgerEpoch.objects.update(reaped_at=Now() - age)


def answered_before(caller: Caller, age: timedelta) -> None:
    caller.post()
    LedgerEntry.objects.update(created_at=F("created_at") - age, finished_at=F("finished_at") - age)


def warnings() -> list[CheckMessage]:
    return [message for message in run_checks(databases=["default"]) if message.id == "idempotency.W004"]


def test_several_at_once_complete_each_call_once(stalled: int, effects: Callable[[], int]) -> None:
    assert effects() == stalled  # the first step of each
    results = at_once(*[complete_stalled] * 3)
    totals = sum(map(Counter, results), Counter[str]())
    assert totals["finished"] == stalled
    assert totals.keys() <= {"finished", "taken"}
    assert effects() == 2 * stalled
    assert complete_stalled() == {}


class TestTheWarning:
    def test_a_project_of_today_or_with_nothing_to_remove_is_not_warned(self, caller: Caller) -> None:
        never_reaped_since(30 * DAY)
        caller.post()
        ConsumedMessage.objects.create(consumer="c", message_id="new")
        assert warnings() == []
        never_reaped_since(timedelta(hours=23))
        LedgerEntry.objects.update(created_at=F("created_at") - 2 * DAY, finished_at=F("finished_at") - 2 * DAY)
        assert warnings() == []

    def test_after_a_day_it_names_the_command_and_the_command_ends_it(self, caller: Caller) -> None:
        never_reaped_since(timedelta(seconds=OVERDUE_SECONDS + 3600))
        answered_before(caller, 2 * DAY)
        (message,) = warnings()
        assert message.msg.startswith("Nothing has reaped the ledger for 26 hours: it still stores answers")
        assert "Run `manage.py idempotency reap` now" in str(message.hint)
        assert not message.is_serious()
        call_command("idempotency", "reap", stdout=StringIO())
        assert warnings() == []

    def test_messages_are_looked_at_too_where_the_check_may_look(self) -> None:
        never_reaped_since(2 * DAY)
        ConsumedMessage.objects.create(consumer="c", message_id="old", consumed_at=Now() - 91 * DAY)
        assert len(warnings()) == 1
        assert check_reaping(None, databases=None) == []
        with override_settings(IDEMPOTENCY={"ENABLED": False}):
            assert check_reaping(None, databases=["default"]) == []
        with transaction.atomic(), connection.cursor() as cursor:
            # `migrate` runs the checks of the new version on the tables of the one before
            cursor.execute("ALTER TABLE idempotency_ledgerepoch RENAME COLUMN reaped_at TO later")
            assert check_reaping(None, databases=["default"]) == []
            transaction.set_rollback(True)

    def test_a_pass_that_fails_counts_as_none(self, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        never_reaped_since(2 * DAY)
        answered_before(caller, 2 * DAY)
        monkeypatch.setattr(ledger, "drop_messages", lambda limit: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reap()
        assert LedgerEpoch.objects.filter(reaped_at__gt=Now() - DAY).count() == 0


def test_the_metric_is_the_age_of_the_last_reaping() -> None:
    def age() -> float | None:
        registry = CollectorRegistry()
        registry.register(LedgerCollector())
        found = re.search(r"^idempotency_reaping_age_seconds (\S+)$", generate_latest(registry).decode(), re.M)
        return float(found[1]) if found else None

    LedgerEpoch.objects.all().delete()
    assert age() is None, "an emptied database has none until it is reaped"
    never_reaped_since(2 * DAY)
    value = LedgerEpoch.objects.get().value
    before = age()
    reap()
    after = age()
    assert before is not None
    assert after is not None
    assert after < DAY.total_seconds() < 2 * DAY.total_seconds() <= before
    assert LedgerEpoch.objects.get().value == value, "the epoch stays as it is"


class TestThePage:
    @pytest.fixture(autouse=True)
    def _an_old_answer(self, caller: Caller) -> None:
        answered_before(caller, 2 * DAY)

    def test_celery(self) -> None:
        assert pages.run(CELERY)["reap_ledger"]()["bodies"] == 1

    def test_tasks_of_django(self) -> None:
        example = CELERY.replace("celery", TASKS).replace("shared_task", "task")
        assert pages.run(example)["reap_ledger"].call()["bodies"] == 1

    def test_procrastinate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        app = procrastinate.App(connector=InMemoryConnector())
        monkeypatch.setattr("procrastinate.contrib.django.app", app)
        task = pages.run(PROCRASTINATE)["reap_ledger"]
        (periodic,) = app.periodic_registry.periodic_tasks.values()
        assert (periodic.task, periodic.cron) == (task, "17 * * * *")
        assert task(timestamp=0)["bodies"] == 1

    def test_cron(self) -> None:
        lines = re.findall(r"manage\.py (idempotency .*)$", pages.text_of(PAGE), re.MULTILINE)
        assert len(lines) == 2
        printed = StringIO()
        for line in lines:
            call_command(*line.split(), stdout=printed)
        assert printed.getvalue() == "", "cron mails what is printed"
        assert LedgerEntry.objects.get().purged_at is not None
