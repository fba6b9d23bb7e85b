"""A phased call keeps its lease exactly as long as its process lives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from idempotency import InProgress, ledger, once
from idempotency.models import LedgerEntry, State
from idempotency.observability import background
from idempotency.protocol import heartbeat
from tests.integration.idempotency.conftest import Caller, end_the_lease
from tests.integration.idempotency.functions.work import WORK, place
from tests.integration.idempotency.urls import STEPS
from tests.processes import on_its_own
from tests.running import until
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

SHORT = 2.0  # seconds of a lease that is to end


@pytest.fixture(autouse=True)
def _early_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew early, so that no test waits for a third of 30 seconds."""
    monkeypatch.setattr(heartbeat, "RENEW_AFTER", 0.01)


def outlive_beats() -> None:
    """Go on until the lease was renewed three times, each after a third of it or much earlier."""
    for _ in range(3):
        end = LedgerEntry.objects.get().lease_until
        until(lambda end=end: LedgerEntry.objects.filter(lease_until__gt=end).exists())


def test_a_view_keeps_its_lease_while_it_runs(caller: Caller, user: User) -> None:
    body = {"amount": 5}
    copies: list[Any] = []

    def hook() -> None:
        STEPS["during"] = None
        outlive_beats()
        copies.extend(at_once(lambda: Caller(user).post("/steps", body=body)))

    STEPS["during"] = hook
    first, copy = caller.post("/steps", body=body), copies[0]
    assert (first.status_code, copy.json()["code"]) == (201, "idempotency_in_progress")
    entry = LedgerEntry.objects.get()
    assert (entry.state, entry.fence) == (State.FINISHED, 1)


@contextmanager
def held(statement: str) -> Iterator[None]:
    """Have another process inside its call, which is killed with the block."""
    with on_its_own(f"{WORK}; {statement}.run(place_and_hang)") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "inside\n"
        yield


def test_another_process_takes_over_from_a_killed_one(redis_server: redis.Redis) -> None:
    with held("early_beats(); once('n', key='k', lease=30)"):
        outlive_beats()
        with pytest.raises(InProgress):
            once("n", key="k", lease=SHORT).run(place)
    end_the_lease()
    redis_server.flushall()  # as old as the lease
    taken = once("n", key="k", lease=SHORT, wait=60).run(place)
    assert once("n", key="k", lease=SHORT).run(place) == taken
    entry = LedgerEntry.objects.get()
    assert (entry.state, entry.fence, Group.objects.count()) == (State.FINISHED, 2, 2)


def test_the_lease_of_a_killed_one_ends_by_itself() -> None:
    with held(f"once('n', key='k', lease={SHORT})"):
        pass
    once("n", key="k", lease=SHORT, wait=60).run(place)
    assert LedgerEntry.objects.get().fence == 2


def test_a_take_over_that_fails_at_once_keeps_no_lease() -> None:
    """Its error, which something may hold for long, holds the call that would renew it."""

    def lose(execute: Any, sql: str, *rest: Any) -> Any:
        if "idempotency_ledgerattempt" in sql and sql.startswith("SELECT"):
            raise OperationalError("the connection is lost")
        return execute(sql, *rest)

    with pytest.raises(ZeroDivisionError):
        once("n", key="k", lease=SHORT).run(lambda: 1 // 0)
    with connection.execute_wrapper(lose), pytest.raises(OperationalError) as held:
        once("n", key="k", lease=SHORT).run(place)
    taken = once("n", key="k", lease=SHORT, wait=60).run(place)
    assert (LedgerEntry.objects.get().state, taken) == (State.FINISHED, {"id": Group.objects.get().pk})
    assert str(held.value) == "the connection is lost"


def test_a_lease_is_renewed_until_it_is_dropped_or_another_takes_over() -> None:
    def lease_seconds() -> float:
        entry = LedgerEntry.objects.annotate(now=Now()).get()
        return float((entry.lease_until - entry.now).total_seconds())

    identity = ledger.Identity(
        scope="s", key="k", fingerprint=b"f" * 32, owner="o", request_id="", digest="0" * 64
    )
    run = ledger.claim_phased(identity, lease_seconds=30)
    assert run is not None
    with transaction.atomic():
        ledger.note_subject(run, subject="order:7")  # a row that is locked is not waited for
        assert at_once(lambda: ledger.renew_leases({run: 300})) == [{run: False}]
    end_the_lease()
    assert ledger.renew_leases({run: 300}) == {run: True}, "a process that was frozen gets its lease back"
    assert 30 < lease_seconds() <= 300
    end_the_lease()
    entry = ledger.find(scope="s", key="k")
    assert entry is not None
    taken = ledger.take_over(entry, owner="o", request_id="", lease_seconds=30)
    assert taken is not None
    assert ledger.renew_leases({run: 300}) == {}
    ledger.drop_lease(taken)
    assert ledger.renew_leases({taken: 300}) == {}
    assert lease_seconds() <= 0


def test_the_thread_ends_with_the_calls_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LINGER_SECONDS", 0.01)

    def beats() -> bool:
        return any(thread.name == "idempotency-heartbeat" for thread in threading.enumerate())

    for key in ("k", "l"):
        assert once("n", key=key, lease=30).run(beats) is True
        until(lambda: not beats())
        LedgerEntry.objects.all().delete()


def test_a_beat_that_fails_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RuntimeError("the database is away")]
    original = ledger.renew_leases

    def renew(leases: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(leases)

    monkeypatch.setattr(ledger, "renew_leases", renew)
    once("n", key="k", lease=30).run(outlive_beats)
    assert failures == []
