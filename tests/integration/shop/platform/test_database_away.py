"""A database that cannot be written to: 503 with Retry-After, wherever it is met."""

import contextlib
import select
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from procrastinate.contrib.django import app
from procrastinate.exceptions import ConnectorException

from idempotency.postgres.availability import database_is_away
from shop.urls import handler404, handler500
from tests.conftest import database_away

__all__ = ["handler404", "handler500"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def remember(request: HttpRequest) -> HttpResponse:
    request.session["seen"] = True  # written by the session's middleware, after the view
    return HttpResponse("remembered")


def note(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_session SET expire_date = expire_date")
    return HttpResponse("noted")


urlpatterns = [
    path("api/remember", remember),
    path("remember", remember),
    path("note", note),
]


def refuse_writes() -> None:
    """What a session on a server meets that was demoted under it."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")


def test_what_a_middleware_meets_is_503_too(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.raise_request_exception = False
    refuse_writes()
    away = client.get("/api/remember")
    assert "The database is away: " in caplog.text, "an operator hears why"
    assert "read-only transaction" in caplog.text
    assert (away.status_code, away.json()["code"], away["Retry-After"]) == (503, "service_unavailable", "1")
    assert client.get("/api/remember").status_code == 200


def test_a_shopper_reads_sentences(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.raise_request_exception = False
    english = ("know yet whether your last request went through", "nothing is ordered or charged twice")
    chinese = ("无法确认您刚才的操作是否成功", "不会重复下单，也不会重复扣款")
    for address, language, words in (
        ("/remember", "en", english),
        ("/note", "en", english),
        ("/note", "zh-hans", chinese),
    ):
        refuse_writes()
        away = client.get(address, headers={"Accept-Language": language})
        assert (away.status_code, away["Retry-After"]) == (503, "1")
        assert away["Content-Type"] == "text/html; charset=utf-8"
        assert all(word in away.text for word in words)
        assert client.get(address).status_code == 200
    assert "read-only transaction" in caplog.text


def test_a_form_gets_that_answer_too(client: Client) -> None:
    """Its rate is counted before the view, by a member whom only the database knows."""
    client.raise_request_exception = False
    with database_away():
        away = client.post("/note")
    assert (away.status_code, away["Content-Type"], away["Retry-After"]) == (503, "text/html; charset=utf-8", "1")
    assert client.post("/note").status_code == 200


def lose(which: Any) -> None:
    with contextlib.suppress(OperationalError), which.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def test_a_lost_connection_has_no_need_of_a_name() -> None:
    error = DatabaseError("the server's last words, without a code")
    assert not database_is_away(error)
    lose(connection)
    assert database_is_away(error)
    connection.close()
    assert not database_is_away(error)
    assert not database_is_away(ValueError("a fault of ours"))


def test_a_session_that_the_server_ended_is_lost() -> None:
    """The server's reason is of class 25, or the driver has its own."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 1")
        assert select.select([connection.connection.fileno()], [], [], 60)[0]
        with pytest.raises(DatabaseError, match=r"idle-in-transaction timeout|closed the connection") as ended:
            note(HttpRequest())
        transaction.set_rollback(True)
    assert database_is_away(ended.value)


def test_what_the_queue_makes_of_it_is_the_same() -> None:
    lose(connection)
    with pytest.raises(ConnectorException) as refused:
        app.configure_task("payments.submit_refund").defer(refund_id="0" * 32)
    connection.close()
    assert database_is_away(refused.value)
    refused.value.__cause__ = ValueError("a fault of ours")
    assert not database_is_away(refused.value)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """This thread's open connection to another database of the project."""
    monkeypatch.setitem(connections.settings, "second", connections.settings["default"])
    connections["second"] = connection.copy(alias="second")
    connections["second"].connect()  # `ensure_connection` is for databases that the test case names
    yield connections["second"]
    connections["second"].close()
    del connections["second"]


def test_a_statement_that_is_wrong_at_every_server_is_wrong_whatever_else_is_lost(second: Any) -> None:
    lose(second)
    for kind in (IntegrityError, DataError, ProgrammingError, NotSupportedError):
        assert not database_is_away(kind("a fault of ours")), kind
    assert database_is_away(InternalError("the server's last words, without a code"))


@pytest.mark.parametrize(("met", "away"), [(DataError, False), (OperationalError, True)])
def test_what_a_block_refuses_to_go_on_after_is_what_counts(
    second: Any, met: type[DatabaseError], away: bool
) -> None:
    lose(second)
    with transaction.atomic():
        with contextlib.suppress(met), transaction.mark_for_rollback_on_error("default"):
            raise met("and somebody swallowed it")
        with pytest.raises(transaction.TransactionManagementError) as refused:
            note(HttpRequest())
    assert database_is_away(refused.value) is away


def test_only_the_server_that_takes_no_writes_is_left(second: Any) -> None:
    refuse_writes()
    with pytest.raises(InternalError) as refused:
        note(HttpRequest())
    kept = second.connection
    assert database_is_away(refused.value)
    assert connection.connection is None
    assert second.connection is kept
    assert not kept.closed
