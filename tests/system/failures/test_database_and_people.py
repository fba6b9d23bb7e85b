"""Rows F21–F30 of docs/guarantees.md: PostgreSQL goes away, handlers break, time passes, people decide."""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import F
from django.db.utils import InterfaceError

from idempotency import ledger
from idempotency.maintenance.completer import complete_stalled
from idempotency.maintenance.decisions import Decision, NotDecidable, abandon, resolve
from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerAttempt, LedgerEntry, State
from tests.emptying import rows
from tests.system.failures.conftest import Stage
from tests.system.protocol.requests import BOTH, charge, order, outside

PLACES = [(order, "the effect"), (order, "record"), (charge, "the result"), (charge, "complete_phased")]


def lose_connections() -> None:
    """The server drops every connection but ours."""
    rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize(("view", "place"), PLACES)
def test_f21_the_connection_is_lost_before_the_commit(stage: Stage, view: Any, place: str) -> None:
    actor = stage.bring_before(stage.start(view), place)
    lose_connections()
    with pytest.raises((OperationalError, InterfaceError)):  # Django and the middleware make 500 or 503 of it
        stage.end(actor)
    stage.let_time_pass()
    stage.ends_well(view)


@BOTH
def test_f22_the_connection_is_lost_with_the_commits_answer(
    stage: Stage, view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, and the process cannot know; unless it can still ask the ledger."""
    name = "record" if view is order else "complete_phased"
    with monkeypatch.context() as patched, contextlib.suppress(OperationalError):  # 503 of the middleware
        _lose_the_answer_of(name, patched)
        assert stage.send(view)[0] == 201
    stage.happened(1)
    stage.ends_well(view)


def _lose_the_answer_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., bool] = getattr(ledger, name)

    def committed_and_lost(*args: Any, **kwargs: Any) -> bool:
        assert original(*args, **kwargs)
        connection.close()
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(ledger, name, committed_and_lost)


@BOTH
def test_f23_the_handler_breaks(stage: Stage, view: Any) -> None:
    assert stage.send(view, plan="break")[0] == 500
    stage.happened(0)
    stage.ends_well(view)


def test_f24_the_handler_refuses(stage: Stage) -> None:
    refused = stage.send(order, plan="refuse")
    assert refused[0] == 409
    assert stage.send(order) == refused
    stage.happened(0)


def test_f25_the_provider_does_not_answer(stage: Stage) -> None:
    assert stage.send(charge, plan="time out")[0] == 202
    assert LedgerEntry.objects.get().state == State.UNCERTAIN
    said = [stage.send(charge) for _ in range(2)]
    assert [status for status, _ in said] == [202, 202]
    assert len(outside.charged) == 1
    stage.happened(1)


@pytest.mark.parametrize(("decide", "status"), [(resolve, 201), (abandon, 409)])
def test_f26_an_operator_decides(stage: Stage, decide: Callable[..., None], status: int) -> None:
    stage.send(charge, plan="time out")
    entry = LedgerEntry.objects.get()
    decision = Decision(entry_id=entry.pk, fence=entry.fence, operator="ann", note="asked the bank")
    decide(decision, **({"status": 201, "body": "{}"} if decide is resolve else {}))
    assert stage.send(charge)[0] == status
    assert LedgerAttempt.objects.filter(note="asked the bank", owner="ann").count() == 1
    with pytest.raises(NotDecidable):
        decide(decision, **({"status": 201, "body": "{}"} if decide is resolve else {}))
    stage.happened(0)


def test_f27_an_operator_decides_while_a_retry_runs(stage: Stage) -> None:
    stage.send(charge, plan="time out")
    entry = LedgerEntry.objects.get()
    retry = stage.bring_before(stage.start(charge), "the result")
    with pytest.raises(NotDecidable):
        abandon(Decision(entry_id=entry.pk, fence=entry.fence, operator="ann", note="too early"))
    assert stage.end(retry)[0] == 202
    stage.happened(1)


@BOTH
def test_f28_the_reaper_comes_while_it_runs(stage: Stage, view: Any) -> None:
    running = stage.bring_before(stage.start(view), "the effect" if view is order else "the result")
    LedgerEntry.objects.update(created_at=F("created_at") - timedelta(days=1000))
    assert set(reap().values()) == {0}
    assert complete_stalled() == {}
    answer = stage.end(running)
    assert (answer[0], stage.send(view)) == (201, answer)
    stage.happened(1)


@BOTH
def test_f29_the_bytes_are_purged(stage: Stage, view: Any) -> None:
    stage.send(view)
    _age(stage, timedelta(days=2))
    late = stage.send(view)
    assert (late[0], "idempotency_result_expired" in late[1]) == (410, True)
    stage.happened(1)


def test_f30_the_key_is_forgotten(stage: Stage) -> None:
    """The end of the guarantee: after 90 days a key is new."""
    stage.send(order)
    _age(stage, timedelta(days=91))
    assert not LedgerEntry.objects.exists()
    assert stage.send(order)[0] == 201
    stage.happened(2)


def _age(stage: Stage, by: timedelta) -> None:
    LedgerEntry.objects.update(created_at=F("created_at") - by, finished_at=F("finished_at") - by)
    stage.server.flushall()  # markers end by themselves after a day
    reap()
