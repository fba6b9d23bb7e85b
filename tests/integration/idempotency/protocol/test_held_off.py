"""Without Redis: a duplicate whose transaction is still open, a wait that is not for it, and bodies too large to read."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.http import HttpResponse

from idempotency.request.keys import digest_of, lock_id_of
from tests.integration.idempotency.conftest import Caller
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]


def connected() -> psycopg.Connection:
    """Connect as another process."""
    return psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": psycopg.Cursor})


@pytest.fixture(autouse=True)
def _no_redis(settings: Any) -> None:
    settings.IDEMPOTENCY = {"REDIS": None}


def test_any_other_trouble_at_the_claim_is_503(
    caller: Caller, user: User, effects: Effects, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"REDIS": None, "WAIT_SECONDS": 5}
    digest = digest_of(scope=f"user:{user.pk} POST things", key="k1")
    with connected() as running, connection.cursor() as cursor:
        running.execute("SELECT pg_advisory_xact_lock(%s)", [lock_id_of(digest)])
        cursor.execute("SET statement_timeout = '20ms'")  # shorter than the wait for the one that runs
        try:
            answer = caller.post()
        finally:
            connection.close()
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert "statement timeout" in caplog.text, "an operator hears why"
    assert effects() == 0


def test_a_body_that_is_too_large_is_413_and_burns_nothing(caller: Caller, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    answer = caller.post(body={"name": "a", "pad": "x" * 200})
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    assert caller.post().status_code == 201


@pytest.mark.usefixtures("server_side_binding")
def test_it_holds_with_server_side_binding(caller: Caller, effects: Effects) -> None:
    first, second = caller.post(), caller.post()
    assert (first.status_code, second.status_code, second["Idempotent-Replayed"]) == (201, 201, "true")
    assert first.content == second.content
    assert effects() == 1


# asked before the twin commits, answered after it: what a busy machine does between a snapshot and a lock
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


def test_a_twin_that_commits_while_we_take_the_lock_is_seen(
    caller: Caller, effects: Effects, gate: psycopg.Connection
) -> None:
    """The answer is looked for after the lock is had: the handler does not even begin a second time."""

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
