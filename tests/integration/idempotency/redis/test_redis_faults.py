"""Redis lying under encryption, and the costs of a call."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings
from redis.connection import UnixDomainSocketConnection

from idempotency.models import LedgerEntry
from idempotency.redis import fastpath
from idempotency.redis.paid_marker import PaidMarker
from idempotency.request.keys import digest_of
from tests.integration.idempotency.conftest import Caller, Effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


@pytest.fixture
def body_keys() -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"BODY_KEYS": {"2026": base64.b64encode(b"k" * 32).decode()}}):
        yield


def forged(fingerprint: bytes) -> bytes:
    """What somebody who can write to Redis, and has no key, would have a caller believe."""
    head = {
        "fingerprint": fingerprint.hex(),
        "status": 201,
        "headers": {"Location": "/elsewhere"},
        "kept": True,
        "body_key_id": "",
    }
    return b"F" + json.dumps(head).encode() + b'\n{"id": "forged"}'


def test_with_body_keys_nothing_of_an_answer_is_plain_in_redis(
    caller: Caller, redis_server: redis.Redis, body_keys: None
) -> None:
    first = caller.post()
    (name,) = redis_server.keys("*:key:*")
    value = redis_server.get(name) or b""
    assert value.startswith(b"S2026\n")
    for part in (first.content, b"status", b"201", b"Location", first["Location"].encode()):
        assert part not in value
    again = caller.post()
    assert (again.content, again["Location"]) == (first.content, first["Location"])


LIES: dict[str, Callable[[bytes, bytes, bytes], bytes]] = {
    "not sealed": lambda value, other, fingerprint: forged(fingerprint),
    "no seal behind the mark": lambda value, other, fingerprint: b"S2026\n" + forged(fingerprint),
    "of another key": lambda value, other, fingerprint: other,
    "changed": lambda value, other, fingerprint: value[:-1] + bytes([value[-1] ^ 1]),
    "under a key that is not here": lambda value, other, fingerprint: b"S2025" + value[5:],
}


@pytest.mark.parametrize(("path", "lie"), [*(("/things", lie) for lie in LIES), ("/phased", "not sealed")])
def test_with_body_keys_redis_cannot_make_an_answer_up(
    caller: Caller, effects: Effects, redis_server: redis.Redis, body_keys: None, lie: str, path: str
) -> None:
    """The ledger is asked, and Redis has the true answer again afterwards."""
    first = caller.post(path)
    caller.post(path, key="k2")
    entry = LedgerEntry.objects.get(key="k1")
    digest = digest_of(scope=entry.scope, key="k1").encode()
    name, name_2 = sorted(redis_server.keys("*:key:*"), key=lambda name: digest not in name)
    value, value_2 = (redis_server.get(key) or b"" for key in (name, name_2))
    redis_server.set(name, LIES[lie](value, value_2, bytes(entry.fingerprint)))
    again = caller.post(path)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert effects() == 2
    with CaptureQueriesContext(connection) as captured:
        assert caller.post(path).content == first.content
    assert not [query for query in captured.captured_queries if "idempotency_ledgerentry" in query["sql"]]


def test_a_mark_that_is_not_signed_or_with_body_keys_not_sealed_says_nothing(
    redis_server: redis.Redis, body_keys: None
) -> None:
    mark = PaidMarker(kind="tested")
    mark.put("1", "真")
    assert mark.get("1") == "真"
    (name,) = redis_server.keys("*:mark:tested:*")
    sealed = redis_server.get(name) or b""
    redis_server.set(name, b"7")
    assert mark.get("1") is None
    with override_settings(IDEMPOTENCY={}):
        assert mark.get("1") is None
        mark.put("1", "7")
        assert mark.get("1") == "7"
        with override_settings(SECRET_KEY="another"):
            assert mark.get("1") is None
        redis_server.set(name, b"\xff\xfe")
        assert mark.get("1") is None, "it is no text"
    redis_server.set(name.replace(b"{1}", b"{2}"), sealed)
    assert mark.get("2") is None


FRAMING = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}


class Cost(NamedTuple):
    """What one request sent: SQL statements, commits, savepoints, Redis commands."""

    sql: int
    commits: int
    savepoints: int
    redis: int


@pytest.fixture
def cost(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cost]:
    """Counts a request's round trips, of its own thread alone."""
    sent: list[object] = []
    here = threading.get_ident()
    original = UnixDomainSocketConnection.send_packed_command

    def counting(self: Any, command: Any, check_health: bool = True) -> Any:
        # the project's throttle asks for a permit before any key is looked at; that is not the key's cost
        if threading.get_ident() == here and not any(b":rate:" in part for part in command):
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


def test_what_a_fresh_request_costs(cost: Callable[..., Cost]) -> None:
    # a script claims the marker and one finishes it; the row is inserted last, in the one transaction
    assert cost() == Cost(sql=PERMISSION + INSERT + 1, commits=1, savepoints=0, redis=2)
    # a refusal's row is one statement that commits by itself, after the handler's effect was rolled back
    refused = cost(key="k2", body={"name": "a", "answer": 409})
    assert refused == Cost(sql=PERMISSION + INSERT + 1, commits=0, savepoints=0, redis=2)
    # phased, the claim is a transaction of one statement; so is the completion, in autocommit
    assert cost("/phased", body={}) == Cost(sql=INSERT + 2, commits=1, savepoints=0, redis=2)
    with override_settings(IDEMPOTENCY={"REDIS": None}):  # held by an advisory lock and looked up in one statement
        assert cost(key="k3") == Cost(sql=PERMISSION + INSERT + 2, commits=1, savepoints=0, redis=0)


def test_what_a_replay_costs(cost: Callable[..., Cost], redis_server: redis.Redis) -> None:
    cost()
    assert cost() == Cost(sql=PERMISSION, commits=0, savepoints=0, redis=1)
    redis_server.flushall()
    cost()
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        # found by the statement that tries the lock; its transaction is given up
        assert cost() == Cost(sql=PERMISSION + 1, commits=0, savepoints=0, redis=0)


def test_the_log_says_why_there_is_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": "redis://someone:qxvw@localhost:1/0"}):
        assert not fastpath.takes_writes()
    assert "Connection refused" in caplog.text
    assert "qxvw" not in caplog.text
