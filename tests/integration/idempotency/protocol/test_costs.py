"""Python cost of a keyed call of REST framework, in function calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

import idempotency
from idempotency import views
from idempotency.drf import idempotent
from idempotency.observability import logs
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.profiling import fewest_calls, profiled
from tests.integration.idempotency.urls import effect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

# function calls, measured on Python 3.11, and a tenth more
FRESH_BEYOND_BARE = {"default": 605, None: 675}  # by where Redis is
REPLAY_BEYOND_IDLE = 325

MODULES_OF_A_FRESH_CALL = 16  # with Redis, atomic, without encryption


class CountingParser(JSONParser):
    """REST framework's own, counted."""

    parsed = 0

    def parse(self, *given: Any, **options: Any) -> Any:
        type(self).parsed += 1
        return super().parse(*given, **options)


class Bare(APIView):
    """View as a project has it, with a block of its own."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (CountingParser,)

    def post(self, request: Request) -> Response:
        with transaction.atomic():
            made = Group.objects.create(name=request.data["name"])
        return Response({"id": made.pk}, status=201)


class Keyed(Bare):
    """The same under a key."""

    @idempotent
    def post(self, request: Request) -> Response:
        return super().post(request)


class Idle(Bare):
    """View that answers at once."""

    def post(self, request: Request) -> HttpResponse:  # type: ignore[override]
        return HttpResponse(status=201)


@views.idempotent
def plain(request: HttpRequest) -> HttpResponse:
    effect(str(uuid4()))
    return HttpResponse(status=201)


urlpatterns = [
    path("plain", plain),
    path("bare", Bare.as_view()),
    path("keyed", Keyed.as_view()),
    path("idle", Idle.as_view()),
]


def post(address: str, key: str, body: Any, *, client: Client | None = None) -> Any:
    headers = {"Idempotency-Key": key}
    return (client or Client()).post(address, body, content_type="application/json", headers=headers)


def calls_of(address: str, key: Callable[[], str]) -> int:
    """Return the calls of one request that reads no epoch and makes no plans."""
    answers: list[Any] = []
    calls = fewest_calls(
        lambda: answers.append(post(address, key(), {"name": "the same"})),
        before=lambda: Group.objects.all().delete(),
    )
    assert [answer.status_code for answer in answers] == [201] * 10
    return calls


@pytest.fixture(autouse=True)
def _without_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "trace", None)


@pytest.mark.parametrize("redis", FRESH_BEYOND_BARE)
def test_a_fresh_call_costs_this_much_beyond_the_bare_view(settings: Any, redis: str | None) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "REDIS": redis}
    bare, fresh = (calls_of(address, lambda: str(uuid4())) for address in ("/bare", "/keyed"))
    assert 0 < fresh - bare <= FRESH_BEYOND_BARE[redis]


def test_a_replay_costs_this_much_beyond_a_view_that_does_nothing() -> None:
    same = str(uuid4())
    idle, replay = (calls_of(address, lambda: same) for address in ("/idle", "/keyed"))
    assert 0 < replay - idle <= REPLAY_BEYOND_IDLE


def test_a_replay_parses_nothing_and_a_body_that_cannot_be_read_is_400_before_and_after(effects: Effects) -> None:
    address, key = "/keyed", str(uuid4())
    assert post(address, key, "{").status_code == 400
    CountingParser.parsed = 0
    first, again = (post(address, key, {"name": "a"}) for _ in range(2))
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (201, 201, "true")
    assert CountingParser.parsed == 1
    assert post(address, key, "{").status_code == 400
    assert post(address, key, {"name": "b"}).status_code == 422
    assert effects() == 1


def test_a_fresh_call_enters_few_of_the_apps_modules(settings: Any) -> None:
    settings.IDEMPOTENCY = {name: value for name, value in settings.IDEMPOTENCY.items() if name != "KEYED"}
    settings.MIDDLEWARE = ["idempotency.middleware.IdempotencyMiddleware"]
    client, entered = Client(), set[str]()
    for _ in range(6):  # statements are prepared, names and middleware made
        assert post("/plain", str(uuid4()), {}, client=client).status_code == 201

    def enter(frame: Any, event: str, argument: Any) -> None:
        entered.add(frame.f_code.co_filename)

    profiled(enter, lambda: post("/plain", str(uuid4()), {}, client=client))
    home = str(Path(idempotency.__file__).parent)
    assert 0 < len({name for name in entered if name.startswith(home)}) <= MODULES_OF_A_FRESH_CALL
