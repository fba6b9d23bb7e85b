"""After a deadlock a handler's second run finds at every door what the first one found."""

import json
import threading
from collections import Counter
from functools import partial
from typing import Any

import ninja
import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.contrib import messages
from django.contrib.auth.models import Group
from django.contrib.messages.storage import default_storage
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.views import View
from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from idempotency import Mode, drf
from idempotency import ninja as keyed_by_ninja
from idempotency.middleware import keyed_form
from tests.integration.idempotency.protocol.optional import DECORATED, operation_of
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True)]


class Meeting:
    """Two calls that lock two rows in opposite order: a deadlock ends one of them."""

    def __init__(self) -> None:
        self.rows = [Group.objects.create(name=name).pk for name in "ab"]
        self.both_have_one = threading.Barrier(2, timeout=30)
        self.runs: Counter[int] = Counter()

    def join(self, call: int) -> None:
        self.runs[call] += 1
        order = [self.rows[call], self.rows[1 - call]]
        if self.runs[call] > 1:
            order.reverse()  # behind the other call, which it meets no more
        Group.objects.select_for_update().get(pk=order[0])
        if self.runs[call] == 1:
            self.both_have_one.wait()
        Group.objects.select_for_update().get(pk=order[1])


MEETINGS: list[Meeting] = []


def place(request: Any, view: Any) -> HttpResponse:
    """Take the order from the request's content."""
    order = request.data if isinstance(request, Request) else json.load(request)
    return JsonResponse(handle(request, order, view))


def handle(request: Any, order: dict[str, Any], view: Any = None) -> dict[str, Any]:
    """Leave something wherever a run can, then meet the other call."""
    messages.success(request, "placed")
    order["items"].append("wrapping")
    if view is not None:
        view.tries = getattr(view, "tries", 0) + 1
        view.kwargs["seen"] = view.kwargs.get("seen", 0) + 1
    MEETINGS[0].join(order["call"])
    left = {} if view is None else {"tries": view.tries, "seen": view.kwargs["seen"]}
    return {"items": order["items"], **left}


def by_setting() -> Any:
    class Order(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return place(request, self)

    return keyed_form(Order.as_view())


class Basket(serializers.Serializer[Any]):
    items = serializers.ListField(child=serializers.CharField())
    call = serializers.IntegerField()


def of_rest_with_a_body() -> Any:
    class Orders(APIView):
        permission_classes = (AllowAny,)

        @drf.idempotent(body=Basket)
        def post(self, request: Request, *, data: dict[str, Any]) -> Response:
            request.data["items"].clear()
            return Response(handle(request, data, self))

    return Orders.as_view()


def of_a_viewset() -> Any:
    class Orders(drf.IdempotentMixin, CreateModelMixin, GenericViewSet[Any]):
        permission_classes = (AllowAny,)
        serializer_class = Basket
        idempotent_handlers = {"create": Mode.ATOMIC}

        def perform_create(self, serializer: Any) -> None:
            made = handle(self.request, self.request.data, self)
            serializer.instance = {**made, "call": 0}
            self.headers["X-Left"] = str(made["tries"])

    return Orders.as_view({"post": "create"})


class OrderIn(ninja.Schema):
    items: list[str]
    call: int


def of_ninja() -> Any:
    @keyed_by_ninja.idempotent
    def place(request: HttpRequest, number: int, order: OrderIn, response: HttpResponse) -> Any:
        response["X-Left"] = str(number)
        return handle(request, vars(order))

    return partial(operation_of(place, "/things/{number}"), number=7)


def of_async_ninja() -> Any:
    @keyed_by_ninja.idempotent
    async def place(request: HttpRequest, number: int, order: OrderIn) -> Any:
        return await sync_to_async(handle)(request, vars(order))

    return partial(operation_of(place, "/things/{number}"), number=7)


# what a run can leave its mark on beside the request and the view: parsed content, arguments, headers
DOORS = {name: DECORATED[name] for name in ("async function", "class", "async class", "APIView", "api_view")} | {
    each.__name__: each for each in (by_setting, of_rest_with_a_body, of_a_viewset, of_ninja, of_async_ninja)
}


def post(view: Any, call: int) -> tuple[dict[str, Any], list[str]]:
    """Send an order; return its answer and the messages that the next page would show."""
    request: Any = RequestFactory().post(
        "/orders",
        {"items": ["mug"], "call": call},
        content_type="application/json",
        headers={"Idempotency-Key": f"k{call}"},
    )
    request._messages = default_storage(request)
    answer = (async_to_sync(view) if iscoroutinefunction(view) else view)(request)
    assert answer.status_code in {200, 201}, answer.content
    return json.loads(answer.content), [str(each) for each in messages.get_messages(request)]


@pytest.fixture
def meeting(settings: Any) -> Any:
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.IDEMPOTENCY = {"PRINCIPAL": "tests.integration.idempotency.urls.everyone"}
    MEETINGS[:] = [Meeting()]
    PLAN["handler"] = place
    yield MEETINGS[0]
    MEETINGS.clear()


@pytest.mark.parametrize("door", DOORS)
def test_a_second_run_finds_what_the_first_one_found(door: str, meeting: Meeting) -> None:
    view = DOORS[door]()
    answers = at_once(lambda: post(view, 0), lambda: post(view, 1))
    assert sum(meeting.runs.values()) == 3
    for body, shown in answers:
        assert (body["items"], shown) == (["mug", "wrapping"], ["placed"])
        assert {body.get("tries", 1), body.get("seen", 1)} == {1}
