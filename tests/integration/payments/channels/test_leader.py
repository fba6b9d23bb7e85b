"""The timer's passes take turns; whatever becomes of Redis, each due row is asked for once."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now

from idempotency.locks.engine import places
from payments import tasks
from payments.channels.sharing import UNSHARED
from payments.models import Attempt
from payments.reconciliation import reconcile
from tests.conftest import hanging
from tests.integration.payments.channels.conftest import Desk, OpenAttempt, counted
from tests.running import until
from tests.threads import at_once, in_background
from tests.unit.payments.providers.conftest import Answer, Company

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def due(open_attempt: OpenAttempt) -> Callable[[int], None]:
    def make(attempts: int) -> None:
        for _ in range(attempts):
            open_attempt()
        all_due()

    return make


def all_due() -> None:
    Attempt.objects.update(next_query_at=Now())


def test_one_worker_at_a_time_asks(
    due: Callable[[int], None], desk: Desk, company: Company, redis_server: redis.Redis
) -> None:
    due(1)
    first = in_background(lambda: tasks.reconcile_due(0))
    desk.arrived(1)
    due(1)
    assert tasks.reconcile_due(0) == 0
    assert len(company.asked) == 1
    desk.let_go(3)
    assert first.result() == 1
    assert tasks.reconcile_due(0) == 2


def test_a_person_who_asks_is_not_held_off(
    due: Callable[[int], None], desk: Desk, redis_server: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    due(1)
    first = in_background(lambda: tasks.reconcile_due(0))
    desk.arrived(1)
    Attempt.objects.update(next_query_at=None)
    due(1)
    desk.let_go(3)
    call_command("reconcile")
    assert "asked about" in capsys.readouterr().out
    assert first.result() == 1


def test_a_pass_goes_on_until_nothing_is_due_and_one_that_breaks_leads_no_more(
    due: Callable[[int], None], channels: None
) -> None:
    due(3)
    with pytest.raises(ValueError, match="Negative"):
        reconcile.run_as_leader(batch=-1)
    assert reconcile.run_as_leader(batch=1) == 3


def test_without_redis_workers_share_the_rows(due: Callable[[int], None], company: Company, away: None) -> None:
    due(8)
    before = counted(UNSHARED, what=reconcile.LEADER)
    asked = at_once(*[lambda: reconcile.run_as_leader(batch=4)] * 2)
    assert sum(asked) == 8
    assert set(Counter(path for path, _ in company.asked).values()) == {1}
    assert counted(UNSHARED, what=reconcile.LEADER) == before + 2


@pytest.mark.parametrize("trouble", ["goes away", "forgets"])
def test_a_redis_that_is_in_trouble_in_the_middle_costs_nothing(
    due: Callable[[int], None],
    company: Company,
    redis_server: redis.Redis,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    due(2)
    answer = company.answer
    with ExitStack() as stack:

        def stop(body: bytes) -> Answer:
            if trouble == "forgets":
                redis_server.flushall()
            elif len(company.asked) == 1:
                stack.enter_context(hanging(redis_server))
            return answer(body)

        company.answer = stop
        assert reconcile.run_as_leader() == 2
    assert ("more may have run at once" in caplog.text) is (trouble == "forgets")
    assert "could not be reconciled" not in caplog.text, "a permit that is lost costs no answer"


@pytest.mark.parametrize(
    ("refuse", "serve"),
    [("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"), ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")],
    ids=["full", "read-only"],
)
def test_a_redis_that_refuses_in_the_middle_costs_nothing_and_is_led_again(
    due: Callable[[int], None],
    company: Company,
    redis_server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    refuse: str,
    serve: str,
) -> None:
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.3)
    due(2)
    answer = company.answer

    def stop(body: bytes) -> Answer:
        redis_server.execute_command(*refuse.split())
        return answer(body)

    company.answer = stop
    try:
        assert reconcile.run_as_leader() == 2
    finally:
        redis_server.execute_command(*serve.split())
    company.answer = answer
    all_due()
    assert until(reconcile.run_as_leader) == 2


def test_a_worker_that_was_killed_does_not_end_the_timer() -> None:
    """Its job stays `doing` in the queue for ever; the next one must be handed out beside it."""

    def fetch() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")
            cursor.execute("SELECT task_name FROM procrastinate_fetch_job_v2(NULL, %s)", cursor.fetchone())
            return cursor.fetchone()[0]

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")  # what other tests left there
    for _ in range(2):
        tasks.reconcile_due.defer(timestamp=0)
        assert fetch() == "payments.reconciliation.reconcile"
