"""Wait-then-replay: woken by a message, a clock, or PostgreSQL's lock."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.http import HttpResponse
from django.test import Client, override_settings

from idempotency.functions import once
from idempotency.redis import fastpath, subscriber
from idempotency.redis.connection import connection_of
from idempotency.request.keys import digest_of, lock_id_of
from tests.integration.idempotency.conftest import Caller, Effects
from tests.integration.idempotency.protocol import optional
from tests.integration.idempotency.urls import PLAN
from tests.running import until
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]
LONG = {"WAIT_SECONDS": 30, "MARKER_SECONDS": 30}


def first_and_copy(first: Callable[[], Any], then: Callable[[], object]) -> list[Any]:
    """Answers of a call that stands still until `then`, and of a copy that listens."""
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        PLAN["during"] = None
        inside.set()
        assert go.wait(30)

    def copy() -> Any:
        assert inside.wait(30)
        return first()

    def conduct() -> Any:
        assert inside.wait(30)
        until(someone_listens, seconds=30)
        then()
        go.set()

    PLAN["during"] = hold
    return at_once(first, copy, conduct)[:2]


def someone_listens() -> bool:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        return any(count for _, count in client.pubsub_numsub(*client.pubsub_channels("*:key:*")))


def test_a_lost_message_costs_a_markers_life_and_no_answer(user: User, effects: Effects) -> None:
    """The connection that would have carried it is cut: the copy looks for itself."""

    def cut() -> None:
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.client_kill_filter(_type="pubsub")

    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 30, "MARKER_SECONDS": 2}):
        first, second = first_and_copy(lambda: Caller(user).post("/held", body={"name": "a"}), cut)
    assert {first.status_code, second.status_code} == {201}
    assert effects() == 1


@pytest.mark.parametrize("door", ["function", "async function"])
def test_a_copy_waits_as_long_as_its_door_says(door: str, user: User, effects: Effects, settings: Any) -> None:
    settings.IDEMPOTENCY = {"MARKER_SECONDS": 30}
    caller = optional.Caller(optional.DECORATED[door](wait=30), user)
    PLAN["act"] = lambda call: PLAN["during"] and PLAN["during"]()
    first, second = first_and_copy(lambda: caller.post(key="k1"), lambda: None)
    assert (first.status_code, second.content, effects()) == (201, first.content, 1)


def test_a_copy_that_waited_leaves_what_the_first_one_wrote_into_the_session(
    effects: Effects, settings: Any
) -> None:
    """It has read the session before, and Django saves it at the end of each request."""
    settings.SESSION_SAVE_EVERY_REQUEST, settings.IDEMPOTENCY = True, LONG
    session = SessionStore()
    session.create()
    key = str(session.session_key)

    def call() -> Any:
        client = Client()
        client.cookies[settings.SESSION_COOKIE_NAME] = key
        return client.post("/checkout", headers={"Idempotency-Key": "9c1ed8b0-61b4-4b26-8a5c-4a3c1c0f3d55"})

    first, second = first_and_copy(call, lambda: None)
    assert (first.status_code, second.status_code, second["Idempotent-Replayed"]) == (303, 303, "true")
    assert effects() == 1
    assert SessionStore(key)["order"] == Group.objects.get().pk


def test_an_answer_is_published_only_where_duplicates_wait(user: User, redis_server: redis.Redis) -> None:
    def published() -> int:
        fastpath.attempt(lambda client: connection_of(client).ask("PING"))  # after all that was not waited for
        return int(redis_server.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"])

    before = published()
    assert Caller(user).post("/held", body={"name": "a"}).status_code == 201
    assert published() == before
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 1}):
        assert Caller(user).post("/held", key="another", body={"name": "a"}).status_code == 201
        assert published() == before + 1
    once("n", key="k").run(lambda: None)  # a copy of it says itself how long it waits
    assert published() == before + 2


def test_one_connection_serves_all_who_wait(redis_server: redis.Redis) -> None:
    others = {client["id"] for client in redis_server.client_list() if int(client["sub"])}
    with subscriber.listen("a") as one, subscriber.listen("a") as two, subscriber.listen("b") as three:
        assert one is not None
        assert two is not None
        assert three is not None
        subscribers = {client["id"] for client in redis_server.client_list() if int(client["sub"])}
        assert len(subscribers - others) == 1
        redis_server.publish("a", "x")
        assert one.wait(30)
        assert two.wait(30)
        assert not three.wait(0)
        assert not one.wait(0)  # a ring is heard once
    with subscriber.listen("a") as again:
        assert again is not None
        redis_server.publish("a", "x")
        assert again.wait(30)


def connected() -> psycopg.Connection:
    """Connect as another process."""
    return psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": psycopg.Cursor})


@pytest.fixture
def running(user: User) -> Iterator[psycopg.Connection]:
    """The first call, in a process that has no Redis."""
    digest = digest_of(scope=f"user:{user.pk} POST things", key="k1")
    with connected() as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_id_of(digest)])
        yield other


def test_a_copy_waits_for_longer_than_a_statement_may_take(
    caller: Caller, effects: Effects, running: psycopg.Connection, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"REDIS": None, "WAIT_SECONDS": 1}
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '100ms'")
    answer = caller.post()
    connection.close()
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_progress")
    assert effects() == 0


def test_any_other_trouble_at_the_claim_is_503(
    caller: Caller, effects: Effects, running: psycopg.Connection, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"REDIS": None, "WAIT_SECONDS": 30}

    def end_its_session() -> None:
        waits = "locktype = 'advisory' AND NOT granted"
        while not running.execute(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {waits}").fetchall():
            pass

    answer, _ = at_once(caller.post, end_its_session)
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert "terminating connection" in caplog.text, "an operator hears why"
    assert effects() == 0


@pytest.mark.usefixtures("server_side_binding", "without_redis")
def test_it_holds_with_server_side_binding(caller: Caller, effects: Effects) -> None:
    first, second = caller.post(), caller.post()
    assert (first.status_code, second.status_code, second["Idempotent-Replayed"]) == (201, 201, "true")
    assert first.content == second.content
    assert effects() == 1


# asked before the copy commits, answered after it: what a busy machine does between a snapshot and a lock
SLOW_LOCK = """
CREATE SCHEMA slow;
CREATE FUNCTION slow.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(777);
    RETURN pg_catalog.pg_try_advisory_xact_lock($1);
END $$
"""


@pytest.fixture
def gate() -> Iterator[psycopg.Connection]:
    """Holds what `slow.pg_try_advisory_xact_lock` waits for, until it is closed."""
    with connection.cursor() as cursor:
        cursor.execute(SLOW_LOCK)
    with connected() as other:
        other.execute("SELECT pg_advisory_lock(777)")
        yield other
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA slow CASCADE")


@pytest.mark.usefixtures("without_redis")
def test_a_duplicate_that_commits_while_we_take_the_lock_is_seen(
    caller: Caller, effects: Effects, gate: psycopg.Connection
) -> None:
    """The handler does not even begin a second time."""

    def late() -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = slow, public, pg_catalog")
        return caller.post()

    def in_time() -> HttpResponse:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 777 AND NOT granted"
        while not gate.execute(waiting).fetchone()[0]:  # type: ignore[index]
            pass
        answer = caller.post()
        gate.close()
        return answer

    second, first = at_once(late, in_time)
    assert (first.status_code, second.status_code) == (201, 201)
    assert (second["Idempotent-Replayed"], second.content) == ("true", first.content)
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM auth_group_id_seq")
        assert cursor.fetchone() == (Group.objects.get().pk,), "an effect was made and rolled back"
    assert effects() == 1
