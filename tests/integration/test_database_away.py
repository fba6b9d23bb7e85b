"""A database that cannot be written to now: 503 with Retry-After by whatever name it comes and wherever it is met."""

import contextlib

import pytest
from django.db import DatabaseError, OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from idempotency.availability import database_is_away
from shop.urls import handler404, handler500

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


def test_what_a_middleware_meets_is_503_too(client: Client) -> None:
    client.raise_request_exception = False
    refuse_writes()
    away = client.get("/api/remember")
    assert (away.status_code, away.json()["code"], away["Retry-After"]) == (503, "service_unavailable", "1")
    assert client.get("/api/remember").status_code == 200


@pytest.mark.parametrize("address", ["/remember", "/note"])
@pytest.mark.parametrize(
    ("language", "sentence"), [("en", "nothing is charged twice"), ("zh-hans", "不会重复扣款")]
)
def test_a_shopper_is_told_in_a_sentence(client: Client, address: str, language: str, sentence: str) -> None:
    client.raise_request_exception = False
    refuse_writes()
    away = client.get(address, headers={"Accept-Language": language})
    assert (away.status_code, away["Content-Type"], away["Retry-After"]) == (503, "text/html; charset=utf-8", "1")
    assert sentence in away.content.decode()
    assert client.get(address).status_code == 200


def test_a_lost_connection_has_no_need_of_a_name() -> None:
    error = DatabaseError("the server's last words, without a code")
    assert not database_is_away(error)
    with contextlib.suppress(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert database_is_away(error)
    connection.close()
    assert not database_is_away(error)
    assert not database_is_away(ValueError("a fault of ours"))
