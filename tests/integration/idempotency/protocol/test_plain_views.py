"""Plain Django views, in a plain sync project: forms, streams, refusals, faults."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import connection
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.test import Client
from django.test.client import RequestFactory

from idempotency.models import LedgerEntry, State
from idempotency.modes import PHASED
from idempotency.protocol.policy import Policy
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.urls import PLAN, plain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}  # guests: nothing but it stands for the caller


@pytest.mark.parametrize("base", [None, "https://shop.example/docs#"])
def test_a_problem_of_the_key_links_to_its_documentation_and_others_where_the_project_says(
    client: Client, base: str | None, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"PROBLEM_TYPE_BASE": base}
    assert "Link" not in client.post("/plain", {"a": "1"}, headers=KEY)
    for key, status, code in (
        ("", 400, "idempotency_key_missing"),
        ("a,b", 400, "idempotency_key_invalid"),
        ("k1", 400, "idempotency_key_weak"),
        (KEY["Idempotency-Key"], 422, "idempotency_key_reused"),
    ):
        answer = client.post("/plain", {"a": "2"}, headers={"Idempotency-Key": key})
        kind = f"{base or 'urn:payonce:problem:'}{code}"
        assert (answer.status_code, answer.json()["code"], answer.json()["type"]) == (status, code, kind)
        link = kind if base else "https://www.ietf.org/archive/id/draft-ietf-httpapi-idempotency-key-header-"
        assert answer["Link"].startswith(f"<{link}")
        assert 'rel="describedby"' in answer["Link"]
    refused = client.post("/plain", {"refuse": "1"}, headers={"Idempotency-Key": str(uuid4())})
    assert refused.get("Link") == (base and f'<{base}refused>; rel="describedby"; type="text/html"')


def test_a_view_that_returns_no_response_leaves_nothing(client: Client, effects: Effects) -> None:
    with pytest.raises(TypeError, match="HttpResponse"):
        client.post("/nothing", headers=KEY)
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)


@pytest.mark.parametrize("mode", ["atomic", "phased"])
def test_a_404_of_djangos_is_stored_and_its_other_refusals_leave_the_key_free(
    client: Client, effects: Effects, mode: str
) -> None:
    for refusal, status in (
        (PermissionDenied(), 403),
        (BadRequest(), 400),
        (SuspiciousOperation(), 400),
        (MultiPartParserError(), 400),
        (RequestDataTooBig(), 413),
        (UnreadablePostError(), 400),
    ):
        PLAN["refusal"] = refusal
        assert client.post(f"/refusing/{mode}", headers=KEY).status_code == status
        assert LedgerEntry.objects.count() == 0
    PLAN["refusal"] = Http404("gone")
    first, again = (client.post(f"/refusing/{mode}", headers=KEY) for _ in range(2))
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (404, 404, "true")
    assert (again.content, effects(), LedgerEntry.objects.get().state) == (first.content, 0, State.FINISHED)


def test_a_request_id_of_any_make_is_stored_as_far_as_it_fits(user: User) -> None:
    for given, stored in (("x" * 65, "x" * 64), (None, ""), (7, "7")):
        request = RequestFactory().post("/plain", headers={"Idempotency-Key": str(uuid4())})
        request.user, request.request_id = user, given  # type: ignore[attr-defined]
        assert plain(request).status_code == 303
        assert LedgerEntry.objects.latest("pk").request_id == stored


def test_handlers_of_two_modes_do_not_take_part_in_one_another(user: User) -> None:
    request = RequestFactory().post("/plain", headers=KEY)
    request.user = user
    policy, phased = Policy(redact=("card",)), Policy(mode=PHASED)
    assert not policy.joins(request)
    exchange = policy.open(request, caller=request)
    exchange.is_handling = True
    assert Policy(redact=("pin",)).joins(request)
    assert exchange._redact == ("card", "pin")
    with pytest.raises(RuntimeError, match="another mode"):
        phased.joins(request)


def test_an_async_view_leaves_its_callers_connection_open(client: Client, effects: Effects) -> None:
    connection.ensure_connection()
    callers = connection.connection
    assert client.post("/async", headers=KEY).status_code == 201
    assert connection.connection is callers
    assert effects() == 1
