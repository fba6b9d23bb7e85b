"""docs/contract.md, 1, row by row, in atomic mode; each case with Redis there, away, and flushed between the calls."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import override_settings

from idempotency.conf import config
from idempotency.models import LedgerEntry, State
from idempotency.redis import fastpath
from tests.integration.idempotency.conftest import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]


@pytest.fixture(autouse=True, params=["with Redis", "without Redis", "with Redis flushed between calls"])
def _redis(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "with Redis":
        yield
    elif request.param == "without Redis":
        with override_settings(IDEMPOTENCY={"REDIS_ALIAS": None}):
            yield
    else:
        original = Caller.post

        def flush_then_post(self: Caller, *args: Any, **kwargs: Any) -> Any:
            fastpath.attempt(lambda client: client.flushdb())
            return original(self, *args, **kwargs)

        monkeypatch.setattr(Caller, "post", flush_then_post)
        yield


def test_a_missing_key_is_400(caller: Caller, effects: Effects) -> None:
    answer = caller.post(key=None)
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_missing")
    assert answer["Content-Type"] == "application/problem+json"
    assert effects() == 0


def test_a_bad_key_is_400(caller: Caller, effects: Effects) -> None:
    answer = caller.post(key="k" * 256)
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_invalid")
    assert effects() == 0


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


def test_a_replay_asks_for_permission_again(caller: Caller, user: User, effects: Effects) -> None:
    caller.post()
    user.groups.add(Group.objects.create(name="banned"))
    assert caller.post().status_code == 403
    user.groups.clear()
    assert caller.post()["Idempotent-Replayed"] == "true"


def test_the_same_key_with_another_body_is_422(caller: Caller, effects: Effects) -> None:
    caller.post()
    other = caller.post(body={"name": "b"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert caller.post().status_code == 201
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


def test_another_user_route_or_key_is_another_request(caller: Caller, effects: Effects) -> None:
    other = Caller(User.objects.create_user("bob"))
    answers = [caller.post(), other.post(), caller.post("/others"), caller.post(key="k2")]
    assert [answer.status_code for answer in answers] == [201] * 4
    assert all("Idempotent-Replayed" not in answer for answer in answers)
    assert effects() == 4


@pytest.mark.parametrize(
    ("asked", "status"), [(402, 402), (404, 404), (4040, 404), (409, 409), (410, 410), (412, 412), (422, 422)]
)
def test_a_business_refusal_is_stored_and_its_writes_are_undone(
    caller: Caller, effects: Effects, asked: int, status: int
) -> None:
    first = caller.post(body={"name": "a", "answer": asked})
    again = caller.post(body={"name": "a", "answer": asked})
    assert first.status_code == again.status_code == status
    assert first.content == again.content
    assert again["Idempotent-Replayed"] == "true"
    assert first["Content-Type"] == again["Content-Type"] == "application/problem+json"
    assert effects() == 0
    assert LedgerEntry.objects.get().response_status == status


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


def test_a_response_over_the_limit_is_kept_as_done(caller: Caller, effects: Effects, settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "MAX_RESPONSE_BYTES": 100}
    first = caller.post(body={"name": "a", "size": 200})
    again = caller.post(body={"name": "a", "size": 200})
    assert (first.status_code, again.status_code) == (201, 410)
    assert again.json()["code"] == "idempotency_result_expired"
    assert again["Location"] == first["Location"]
    assert effects() == 1


def test_purged_bytes_are_410_and_never_run_again(caller: Caller, effects: Effects) -> None:
    caller.post()
    LedgerEntry.objects.update(response_body=None)
    fastpath.attempt(lambda client: client.flushdb())
    again = caller.post()
    assert (again.status_code, again.json()["code"]) == (410, "idempotency_result_expired")
    assert effects() == 1


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


def test_redis_server_is_really_used_or_really_not(caller: Caller, redis_server: redis.Redis) -> None:
    caller.post()
    used = bool(redis_server.keys("*:key:*"))
    assert used == (config().redis_alias is not None)
