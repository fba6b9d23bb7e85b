"""Plain Django views, in a plain sync project: forms, streams, refusals, faults."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.test.client import RequestFactory

from idempotency import tokens
from idempotency.models import LedgerEntry
from idempotency.principal import principal_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]
KEY = {"Idempotency-Key": "k1"}


def test_a_guest_is_known_by_the_session(client: Client, effects: Effects) -> None:
    first = client.post("/plain", {"a": "1"}, headers=KEY)
    again = client.post("/plain", {"a": "1"}, headers=KEY)
    stranger = Client().post("/plain", {"a": "1"}, headers=KEY)
    assert first.status_code == again.status_code == stranger.status_code == 303
    assert first["Location"] == again["Location"] != stranger["Location"]
    assert effects() == 2


def test_safe_methods_pass(client: Client) -> None:
    assert client.get("/plain").content == b"looked"


def test_a_form_token_counts_once_and_for_one_form(client: Client, effects: Effects) -> None:
    client.post("/plain", headers=KEY)
    request = RequestFactory().get("/")
    request.session = client.session
    token = tokens.issue(principal_of(request)).token
    first = client.post("/plain", {"a": "1", "idempotency_token": token})
    again = client.post("/plain", {"idempotency_token": token, "a": "1"})
    assert first["Location"] == again["Location"]
    other = client.post("/streamed", {"idempotency_token": token})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert effects() == 2


def test_a_refusal_is_undone_and_replayed(client: Client, effects: Effects) -> None:
    first = client.post("/plain", {"refuse": "1"}, headers=KEY)
    again = client.post("/plain", {"refuse": "1"}, headers=KEY)
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (409, 409, "true")
    assert effects() == 0


def test_key_problems_are_problem_documents(client: Client) -> None:
    answer = client.post("/plain")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")


def test_a_stream_is_done_once_but_not_kept(client: Client, effects: Effects) -> None:
    first = client.post("/streamed", headers=KEY)
    assert b"".join(first) == b"one two"  # type: ignore[arg-type]
    again = client.post("/streamed", headers=KEY)
    assert (again.status_code, again["Location"]) == (410, "/things/streamed")
    assert effects() == 1


def test_a_view_that_returns_no_response_leaves_nothing(client: Client, effects: Effects) -> None:
    with pytest.raises(TypeError, match="HttpResponse"):
        client.post("/nothing", headers=KEY)
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
