"""Request log of a key: what each call came to, at no cost to a replay."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import IntegrityError, connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from idempotency import once
from idempotency.errors import KeyReused
from idempotency.ledger import redis_prefix
from idempotency.maintenance import complete_stalled, reap, request_log
from idempotency.models import Arrival, LedgerEntry
from idempotency.redis import arrivals, log_lines
from idempotency.redis.fastpath import breaker
from tests.integration.idempotency.conftest import Caller
from tests.integration.idempotency.urls import PLAN
from tests.running import until
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

SECRET = "rosebud"


@pytest.fixture(autouse=True)
def _lines_are_sent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "SEND_SECONDS", 0.01)


def sent(count: int) -> None:
    """Wait until Redis has `count` lines."""
    until(lambda: len(log_lines.newest(limit=1_000) or ()) == count)


def log_of(key: str = "k1") -> request_log.RequestLog:
    entry = LedgerEntry.objects.get(key=key)
    return request_log.log_of(scope=entry.scope, key=key)


def outcomes(key: str = "k1") -> list[str]:
    """From the oldest to the newest."""
    return [line.outcome for line in log_of(key).lines][::-1]


def test_each_call_is_there_and_what_a_refused_one_changed(caller: Caller) -> None:
    caller.post(body={"name": SECRET})
    caller.post(body={"name": SECRET})
    assert caller.post(body={"name": "other", "size": 2}).status_code == 422
    sent(3)
    assert outcomes() == ["executed", "replayed", "reused"]
    assert [request_log.store() for _ in range(2)] == [3, 0]
    assert outcomes() == ["executed", "replayed", "reused"]
    found = log_of()
    (changes,) = found.changes.values()
    assert changes == ["“name” has another value", "“size” is added"]
    assert {line.address for line in found.lines} == {"127.0.0.1"}
    assert found.is_current
    assert SECRET not in json.dumps(list(Arrival.objects.values("outline", "request_id", "outcome")))
    with pytest.raises(IntegrityError, match="not changed"):
        Arrival.objects.update(outcome="replayed")


@pytest.mark.parametrize(
    ("path", "answers", "expected"),
    [
        ("/held", [201, 201], ["executed", "replayed"]),
        ("/held", [429, 429], ["not_stored", "not_stored"]),
        ("/phased", ["crash", 201], ["failed", "executed"]),
        ("/phased", [202, 201], ["uncertain", "executed"]),
        ("/phased", [409, 201], ["refused", "replayed"]),
    ],
)
def test_outcomes_have_names(caller: Caller, path: str, answers: list[Any], expected: list[str]) -> None:
    for answer in answers:
        PLAN["answer"] = answer
        caller.post(path)
    sent(len(expected))
    request_log.store()
    assert [row.outcome for row in Arrival.objects.order_by("id")] == expected


def test_a_copy_meets_a_running_call_and_one_an_answer_that_is_gone(
    caller: Caller, redis_server: redis.Redis
) -> None:
    PLAN["during"] = lambda: PLAN.setdefault("conflict", caller.post("/held").status_code)
    assert caller.post("/held").status_code == 201
    assert PLAN.pop("conflict") == 409
    del PLAN["during"]
    LedgerEntry.objects.update(response_body=None)
    for name in redis_server.scan_iter("*:key:*"):
        redis_server.delete(name)
    assert caller.post("/held").status_code == 410
    sent(3)
    assert outcomes() == ["in_progress", "executed", "expired"]


def test_a_function_has_one_too(transactional_db: None) -> None:
    once("orders.receipt", key=7, payload={"to": "a"}).run(lambda: None)
    with suppress(KeyReused):
        once("orders.receipt", key=7, payload={"to": "b"}).run(lambda: None)
    sent(2)
    assert outcomes("7") == ["executed", "reused"]
    assert list(log_of("7").changes.values()) == [["“to” has another value"]]


def test_a_replay_asks_no_database_and_redis_no_more_than_without_it(
    caller: Caller, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.post()
    sent(1)
    monkeypatch.setattr(arrivals, "SEND_SECONDS", 3_600)  # what follows is what the answer waits for

    def asked() -> dict[str, int]:
        redis_server.config_resetstat()
        with CaptureQueriesContext(connection) as queries:
            for _ in range(5):
                assert caller.post()["Idempotent-Replayed"] == "true"
        assert [query["sql"] for query in queries if "idempotency" in query["sql"]] == []
        return {name: found["calls"] for name, found in redis_server.info("commandstats").items()}

    logged = asked()
    monkeypatch.setattr(arrivals, "note", lambda **_: None)
    assert logged == asked()


def test_lines_of_many_calls_travel_together_and_workers_store_each_once(
    caller: Caller, redis_server: redis.Redis
) -> None:
    at_once(*[caller.post] * 4)
    sent(4)
    (name,) = redis_server.scan_iter("*:request-log")
    assert 0 < redis_server.ttl(name) <= arrivals.STREAM_SECONDS
    at_once(*[request_log.store] * 4)
    assert (Arrival.objects.count(), log_lines.newest(limit=9)) == (4, [])


def test_the_stream_is_capped(caller: Caller, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "STREAM_MAX", 100)
    for _ in range(3):
        caller.post()
    sent(3)
    (name,) = redis_server.scan_iter("*:request-log")
    line = redis_server.xrange(name, count=1)[0][1]
    for _ in range(500):
        redis_server.xadd(name, line)
    caller.post()
    until(lambda: redis_server.xlen(name) < 300)


def test_a_server_that_takes_no_lines_still_serves_markers(
    caller: Caller, redis_server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    redis_server.set(f"{redis_prefix()}:request-log", "another kind of value")
    caller.post()
    until(lambda: "Redis refused lines" in caplog.text)
    assert breaker.is_closed


def test_a_line_goes_with_its_entry_or_without_one_by_its_age(caller: Caller, settings: Any) -> None:
    for key, answer in (("old", 201), ("new", 201), ("none", 500)):
        caller.post(key=key, body={"name": "a", "answer": answer})
    sent(3)
    request_log.store()
    LedgerEntry.objects.filter(key="old").update(
        created_at=F("created_at") - timedelta(days=91), finished_at=F("finished_at") - timedelta(days=91)
    )
    found = reap()
    assert (found["tombstones"], found["log lines"]) == (1, 0)
    assert sorted(row.outcome for row in Arrival.objects.all()) == ["executed", "failed"]
    settings.IDEMPOTENCY = {"TOMBSTONE_SECONDS": 0.001, "BODY_SECONDS": 0.001, "TOKEN_SECONDS": 0.001}
    assert reap()["log lines"] == 1
    assert not Arrival.objects.exists()


def test_a_client_in_a_loop_fills_no_table(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "KEY_MAX", 2)
    for _ in range(3):
        caller.post()
        sent(1)
        request_log.store()
    assert Arrival.objects.count() == 2


def test_what_cannot_be_read_or_stored_stops_no_later_line(
    caller: Caller, redis_server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caller.post()
    sent(1)
    (name,) = redis_server.scan_iter("*:request-log")
    genuine = redis_server.xrange(name, count=1)[0][1]
    wrong = [{b"at": b"soon"}, {b"at": b"inf"}, {b"outline": b"[1]"}, {b"outline": b"{"}, {b"outcome": b"later"}]
    for fields in wrong:
        redis_server.xadd(name, genuine | fields)
    assert outcomes() == ["executed"]
    assert request_log.store() == 1 + len(wrong)
    redis_server.xadd(name, genuine | {b"request": b"a\0b"})
    redis_server.xadd(name, {b"at": b"1", b"outcome": b"of a later version"})
    assert request_log.store() == 2
    assert "cannot be stored" in caplog.text
    caller.post()
    sent(1)
    assert request_log.store() == 1
    assert outcomes() == ["executed", "replayed"]


def test_the_workers_timers_store_it_and_do_the_other_work_without_its_table(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for worker in (reap, complete_stalled):
        caller.post()
        sent(1)
        worker()
        assert log_lines.newest(limit=9) == []
    caller.post()
    sent(1)
    elsewhere = request_log._STORE.replace("idempotency_arrival", "idempotency_none")
    monkeypatch.setattr(request_log, "_STORE", elsewhere)
    assert complete_stalled() == {}
    assert "cannot be stored" in caplog.text
    sent(1)
    assert Arrival.objects.count() == 2


def test_only_a_callers_own_entries_are_found(user: User, caller: Caller) -> None:
    caller.post()
    entry = LedgerEntry.objects.get()
    for scope in ("user:70 POST things", f"user:{user.pk} b POST things", f"user:{user.pk} in:acme POST things"):
        copy = LedgerEntry.objects.get(pk=entry.pk)
        copy.pk, copy.scope = None, scope
        copy.save(force_insert=True)
    assert request_log.entries_of(principal=f"user:{user.pk}", key="k1") == [entry]
    assert request_log.entries_of(principal=f"user:{user.pk}", key="k2") == []
