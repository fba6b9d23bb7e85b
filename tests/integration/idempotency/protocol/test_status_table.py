"""docs/contract.md, 1, beside test_doors.py and tests/system/stores."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from prometheus_client import REGISTRY
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from idempotency import Mode, drf
from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Caller, Effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def test_a_replay_has_no_cookie_and_no_header_but_those_that_are_kept(caller: Caller) -> None:
    first, again = caller.post(), caller.post()
    assert again["Location"] == first["Location"]
    assert {"secret"} == first.cookies.keys() > again.cookies.keys()
    assert not {"Set-Cookie", "X-Other"} & again.headers.keys()


def test_validation_and_authentication_come_first_and_burn_nothing(caller: Caller, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    key = {"Idempotency-Key": "k1"}
    refused: list[tuple[Any, int, str]] = [
        (caller.post(key=None, body={"name": ""}), 400, "validation_failed"),
        (caller.post(body={"name": "a", "pad": "x" * 200}), 413, "payload_too_large"),
        (caller.client.post("/things", b"{", content_type="application/json", headers=key), 400, "malformed"),
        (caller.client.post("/things", b"a=1", content_type="text/plain"), 415, "unsupported_media_type"),
    ]
    for answer, status, code in refused:
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (LedgerEntry.objects.count(), caller.post().status_code) == (0, 201)
    caller.client.force_authenticate(None)
    assert caller.post(key=None).status_code == 401


@pytest.mark.parametrize("path", ["/things", "/nested"], ids=["for the permission", "for the call alone"])
def test_a_database_that_is_away_is_503_and_nothing_happens(
    caller: Caller, effects: Effects, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    key = str(uuid4())
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "OPTIONS", {"host": "/nowhere"})
        answer = caller.post(path, key)
        connection.close()
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) >= 1
    assert effects() == 0
    assert caller.post(path, key).status_code == 201


@pytest.mark.parametrize(("path", "mode"), [("/things", "atomic"), ("/phased", "phased")])
def test_a_server_that_takes_no_writes_is_left_for_another(
    caller: Caller, effects: Effects, path: str, mode: str
) -> None:
    def failed() -> float:
        labels = {"mode": mode, "outcome": "failed"}
        return REGISTRY.get_sample_value("idempotency_requests_total", labels) or 0.0

    before = failed()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    answer = caller.post(path)
    assert (answer.status_code, answer.json()["code"], failed()) == (503, "service_unavailable", before + 1)
    assert int(answer["Retry-After"]) >= 1
    assert (caller.post(path).status_code, effects()) == (201, 1)


class Name(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ("name",)


@pytest.mark.parametrize("mode", Mode)
def test_a_body_that_is_refused_by_now_is_still_the_first_calls(user: User, mode: Mode) -> None:
    class Names(APIView):
        @drf.idempotent(body=Name, mode=mode)
        def post(self, request: Request, *, data: dict[str, Any]) -> Response:
            return Response({"id": Group.objects.create(**data).pk}, status=201)

    def post(key: str | None, name: str = "taken from now on") -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        request = APIRequestFactory().post("/", {"name": name}, format="json", headers=headers)
        force_authenticate(request, user)
        return Names.as_view()(request)

    def reused() -> float | None:
        return REGISTRY.get_sample_value("idempotency_conflicts_total", {"kind": "reused"})

    counted = reused()
    first, again = post("k1"), post("k1")
    assert (again.status_code, again.content) == (201, first.render().content)
    assert again["Idempotent-Replayed"] == "true"
    assert [post(*sent).status_code for sent in (("k2",), (None,), ("k1", ""))] == [400, 400, 400]
    assert reused() == counted  # it counts answers of 422
    LedgerEntry.objects.update(response_body=None)
    assert (post("k1").status_code, Group.objects.count()) == (410, 1)
