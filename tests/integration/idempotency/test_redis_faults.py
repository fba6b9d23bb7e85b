"""Redis paused, stopped or lying: the answer stays right and comes within the client's time-outs."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings
from redis.connection import UnixDomainSocketConnection

from idempotency import fastpath
from idempotency.marks import Mark
from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]


@pytest.fixture
def paused(redis_server: redis.Redis) -> Iterator[None]:
    redis_server.client_pause(timeout=2_000)
    yield
    redis_server.ping()  # answers when the pause is over; nothing can end it earlier


def test_paused_redis_costs_one_time_out_and_then_nothing(
    caller: Caller, effects: Effects, paused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = fastpath.get_redis_connection

    def counting(alias: str) -> object:
        asked.append(1)
        return original(alias)

    monkeypatch.setattr(fastpath, "get_redis_connection", counting)
    with override_settings(IDEMPOTENCY={"BREAKER_SECONDS": 60}):
        first = caller.post()
        again = caller.post()
    assert (first.status_code, again.content) == (201, first.content)
    assert effects() == 1
    assert len(asked) == 1  # the breaker kept every later command away


def test_stopped_redis_is_like_no_redis(caller: Caller, effects: Effects) -> None:
    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
            "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 0.2, "SOCKET_TIMEOUT": 0.2},
        }
    }
    with override_settings(CACHES=caches):
        assert not fastpath.ping()
        assert caller.post().content == caller.post().content
    assert effects() == 1


def test_a_mark_that_is_no_text_tells_nothing(redis_server: redis.Redis) -> None:
    mark = Mark(kind="tested")
    mark.put("1", "真")
    assert mark.get("1") == "真"
    (name,) = redis_server.keys("idempotency:mark:tested:*")
    redis_server.set(name, b"\xff\xfe")
    assert mark.get("1") is None


def test_a_marker_that_lies_running_does_not_hide_the_answer(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    first = caller.post()
    (name,) = redis_server.keys("idempotency:*")
    entry = LedgerEntry.objects.get()
    redis_server.set(name, b"R" + bytes(entry.fingerprint).hex().encode() + b":elsewhere")
    assert caller.post().content == first.content
    redis_server.set(name, b"R" + b"00" * 32 + b":elsewhere")
    assert caller.post().status_code == 422
    redis_server.set(name, b"not ours")
    assert caller.post().content == first.content
    assert effects() == 1


def test_a_running_marker_of_a_dead_process_is_409_until_it_expires(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    first = caller.post(key="other")
    (name,) = redis_server.keys("idempotency:*")
    redis_server.set(name, redis_server.get(name) or b"")
    entry = LedgerEntry.objects.get()
    marker_value = b"R" + bytes(entry.fingerprint).hex().encode() + b":dead"
    LedgerEntry.objects.all().delete()
    redis_server.set(name, marker_value, px=60_000)
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 0.1}):
        waited = caller.post(key="other")
    assert (waited.status_code, waited.json()["code"]) == (409, "idempotency_in_progress")
    redis_server.delete(name)
    assert caller.post(key="other").status_code == first.status_code == 201


FRAMING = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}


class Cost(NamedTuple):
    """What one request sent: SQL statements, commits, savepoints, Redis commands."""

    sql: int
    commits: int
    savepoints: int
    redis: int


@pytest.fixture
def cost(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cost]:
    """Counts a request's round trips, beside DRF (forced login: no SQL)."""
    sent: list[object] = []
    original = UnixDomainSocketConnection.send_packed_command

    def counting(self: Any, command: Any, check_health: bool = True) -> Any:
        # the project's throttle asks for a permit before any key is looked at; that is not the key's cost
        if not any(b"payonce:rate:" in part for part in command):
            sent.append(command)
        return original(self, command, check_health)

    monkeypatch.setattr(UnixDomainSocketConnection, "send_packed_command", counting)
    caller.post(key="warm-up")

    def count(path: str = "/things", key: str = "k1", body: Any = None) -> Cost:
        sent.clear()
        with CaptureQueriesContext(connection) as captured:
            caller.post(path, key=key, body=body)
        statements = [query["sql"] for query in captured.captured_queries]
        framing = [sql for sql in statements if sql.split()[0] in FRAMING]
        return Cost(
            sql=len(statements) - len(framing),
            # outside a transaction every statement that writes is a commit of its own
            commits=sum(sql == "COMMIT" for sql in statements),
            savepoints=sum(sql.startswith("SAVEPOINT") for sql in statements),
            redis=len(sent),
        )

    return count


PERMISSION = 1  # the view's permission asks the database, on a replay too
INSERT = 1  # the handler's effect


def test_what_a_fresh_atomic_request_costs(cost: Callable[..., Cost]) -> None:
    """One row inserted last, in the one transaction; a script to claim the marker and one to finish it."""
    assert cost() == Cost(sql=PERMISSION + INSERT + 1, commits=1, savepoints=0, redis=2)


def test_what_a_replay_costs(cost: Callable[..., Cost], redis_server: redis.Redis) -> None:
    cost()
    assert cost() == Cost(sql=PERMISSION, commits=0, savepoints=0, redis=1)
    redis_server.flushall()
    cost()
    with override_settings(IDEMPOTENCY={"REDIS_ALIAS": None}):
        # found by the statement that tries the lock; its transaction is given up
        assert cost() == Cost(sql=PERMISSION + 1, commits=0, savepoints=0, redis=0)


def test_what_a_refusal_costs(cost: Callable[..., Cost]) -> None:
    """Its row is one statement that commits by itself, after the handler's effect was rolled back."""
    assert cost(body={"name": "a", "answer": 409}) == Cost(
        sql=PERMISSION + INSERT + 1, commits=0, savepoints=0, redis=2
    )


def test_what_a_fresh_atomic_request_costs_without_redis(cost: Callable[..., Cost]) -> None:
    """Held by an advisory lock and looked up in one statement; recorded last."""
    with override_settings(IDEMPOTENCY={"REDIS_ALIAS": None}):
        assert cost() == Cost(sql=PERMISSION + INSERT + 2, commits=1, savepoints=0, redis=0)


def test_what_a_fresh_phased_request_costs(cost: Callable[..., Cost]) -> None:
    """The claim is a transaction of one statement; so is the completion, in autocommit."""
    assert cost("/phased", body={}) == Cost(sql=INSERT + 2, commits=1, savepoints=0, redis=2)
