"""docs/contract.md, 1: what test_doors.py does not show of every view, nor tests/system/stores of every store."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from idempotency.models import LedgerEntry, State
from tests.integration.idempotency.conftest import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]


def test_the_second_answer_is_the_first_with_the_same_bytes(caller: Caller, effects: Effects) -> None:
    first = caller.post()
    again = caller.post(key='"k1"')
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    for name in ("Content-Type", "Location", "ETag"):
        assert first[name] == again[name]
    assert again["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first
    assert "secret" in first.cookies
    assert "Set-Cookie" not in again
    assert not again.cookies
    assert "X-Other" not in again
    assert effects() == 1


def test_white_space_and_member_order_are_the_same_request(caller: Caller) -> None:
    caller.post(body={"name": "a", "size": 2})
    again = caller.client.post(
        "/things",
        b'{ "size": 2,\n "name": "a" }',
        content_type="application/json",
        headers={"Idempotency-Key": "k1"},
    )
    assert again["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("asked", [404, 4040], ids=["NotFound of REST framework", "Http404 of Django"])
def test_what_is_not_found_is_stored_and_its_writes_are_undone(
    caller: Caller, effects: Effects, asked: int
) -> None:
    first, again = (caller.post(body={"name": "a", "answer": asked}) for _ in range(2))
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (404, 404, "true")
    assert (again.content, again["Content-Type"]) == (first.content, "application/problem+json")
    assert (effects(), LedgerEntry.objects.get().response_status) == (0, 404)


@pytest.mark.parametrize("asked", [400, 401, 403, 413, 415, 429, 500, 503])
def test_other_errors_are_not_stored_and_the_key_is_free(caller: Caller, effects: Effects, asked: int) -> None:
    first = caller.post(body={"name": "a", "answer": asked})
    assert first.status_code == asked
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    second = caller.post(body={"name": "b"})
    assert second.status_code == 201
    assert "Idempotent-Replayed" not in second


def test_redirects_and_other_2xx_are_stored(caller: Caller, effects: Effects) -> None:
    for status in (200, 202, 204, 303):
        body = {"name": "a", "answer": status}
        first, again = caller.post(key=f"k{status}", body=body), caller.post(key=f"k{status}", body=body)
        assert (first.status_code, again.status_code) == (status, status)
        assert first.content == again.content
    assert effects() == 4


def test_validation_and_authentication_come_first_and_burn_nothing(caller: Caller, effects: Effects) -> None:
    assert caller.post(key=None, body={"name": ""}).json()["code"] == "validation_failed"
    broken = caller.client.post(
        "/things", b"{", content_type="application/json", headers={"Idempotency-Key": "k1"}
    )
    assert (broken.status_code, broken.json()["code"]) == (400, "malformed")
    assert caller.client.post("/things", b"a=1", content_type="text/plain").status_code == 415
    caller.client.force_authenticate(None)
    assert caller.post(key=None).status_code == 401
    assert LedgerEntry.objects.count() == 0


def test_a_database_that_is_away_is_503_and_nothing_happens(
    caller: Caller, effects: Effects, settings: Any
) -> None:
    kept = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.settings_dict["OPTIONS"] = {"host": "/nowhere"}
    try:
        answer = caller.post()
    finally:
        connection.close()
        connection.settings_dict["OPTIONS"] = kept
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert effects() == 0
    assert caller.post().status_code == 201


def test_a_server_that_takes_no_writes_is_left_for_another(caller: Caller, effects: Effects) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    answer = caller.post()
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert (caller.post().status_code, effects()) == (201, 1)


def test_the_ledger_row_tells_what_happened(caller: Caller, user: User) -> None:
    caller.post()
    entry = LedgerEntry.objects.get()
    assert (entry.scope, entry.key, entry.state) == (f"user:{user.pk} POST things", "k1", State.FINISHED)
    assert entry.response_headers == {
        "Content-Type": "application/json",
        "Location": entry.response_headers["Location"],
        "ETag": '"1"',
    }
    assert entry.finished_at is not None
