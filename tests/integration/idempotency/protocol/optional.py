"""One handler, behind each of nine doors with the options that a test asks for."""

import uuid
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View
from ninja import NinjaAPI, Status
from rest_framework.decorators import api_view, permission_classes
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import force_authenticate
from rest_framework.views import APIView

from idempotency import KeyedCall, drf, ninja, views
from idempotency.errors import Problem
from tests.integration.idempotency.urls import PLAN, effect


def behave(call: KeyedCall) -> tuple[dict[str, Any], int]:
    made = effect("option")
    if act := PLAN.get("act"):
        act(call)
    if PLAN.get("refuse"):
        raise Problem(409, "refused", "No.")
    return {"id": made.pk, "digest": call.key_digest, "secret": "s3cret"}, PLAN.get("status", 201)


def answered(request: Any, call: KeyedCall, made_by: Callable[..., Any] = JsonResponse, view: Any = None) -> Any:
    """Behave, and answer in the door's own kind of response, or call the planned handler."""
    if handler := PLAN.get("handler"):
        return handler(request, view)
    body, status = behave(call)
    return made_by(body, status=status)


def function(**options: Any) -> Any:
    @views.idempotent(**options)
    def view(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        return answered(request, call)

    return view


def asynchronous(**options: Any) -> Any:
    @views.idempotent(**options)
    async def view(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        return await sync_to_async(answered)(request, call)

    return view


def of_a_class(**options: Any) -> Any:
    @method_decorator(views.idempotent(**options), name="post")
    class Thing(View):
        def post(self, request: HttpRequest, call: KeyedCall) -> HttpResponse:
            return answered(request, call, view=self)

    return Thing.as_view()


def of_an_async_class(**options: Any) -> Any:
    @method_decorator(views.idempotent(**options), name="post")
    class Thing(View):
        async def post(self, request: HttpRequest, call: KeyedCall) -> HttpResponse:
            return await sync_to_async(answered)(request, call, view=self)

    return Thing.as_view()


def of_rest(**options: Any) -> Any:
    class Thing(APIView):
        permission_classes = (AllowAny,)

        @drf.idempotent(**options)
        def post(self, request: Request, *, call: KeyedCall) -> Response:
            return answered(request, call, Response, self)

    return Thing.as_view()


def of_a_mixin(**options: Any) -> Any:
    class Thing(drf.IdempotentMixin, APIView):
        permission_classes = (AllowAny,)
        idempotent_handlers = {"post": options}

        def post(self, request: Request, *, call: KeyedCall) -> Response:
            return answered(request, call, Response, self)

    return Thing.as_view()


def below_api_view(**options: Any) -> Any:
    @api_view(["POST"])
    @permission_classes([AllowAny])
    @drf.idempotent(**options)
    def view(request: Request, call: KeyedCall) -> Response:
        return answered(request, call, Response)

    return view


def with_status(body: Any, *, status: int) -> Status:
    return Status(status, body)


def of_ninja(**options: Any) -> Any:
    @ninja.idempotent(**options)
    def view(request: HttpRequest, call: KeyedCall) -> Any:
        return answered(request, call, with_status)

    return operation_of(view)


def of_async_ninja(**options: Any) -> Any:
    @ninja.idempotent(**options)
    async def view(request: HttpRequest, call: KeyedCall) -> Any:
        return await sync_to_async(answered)(request, call, with_status)

    return operation_of(view)


def operation_of(function: Any, address: str = "/things") -> Any:
    """Return the view of an API that has this operation alone."""
    api = NinjaAPI(urls_namespace=uuid.uuid4().hex)
    api.post(address, response={200: dict, 201: dict, 409: dict})(function)
    (view,) = (each.callback for each in api.urls[0] if str(each.pattern).startswith("things"))
    return view


DECORATED: dict[str, Callable[..., Any]] = {
    "function": function,
    "async function": asynchronous,
    "class": of_a_class,
    "async class": of_an_async_class,
    "APIView": of_rest,
    "mixin": of_a_mixin,
    "api_view": below_api_view,
    "Ninja": of_ninja,
    "async Ninja": of_async_ninja,
}


class Caller:
    """A user who calls one view, without addresses and middleware between."""

    def __init__(self, view: Any, user: User) -> None:
        self.view = async_to_sync(view) if iscoroutinefunction(view) else view
        self.user = user

    def post(self, body: Any = None, *, key: str | None = None, user: Any = None, **headers: str) -> Any:
        if key is not None:
            headers["Idempotency-Key"] = key
        sent = {} if body is None else body
        request: Any = RequestFactory().post("/things", sent, content_type="application/json", headers=headers)
        request.user = self.user if user is None else user
        force_authenticate(request, request.user)
        answer = self.view(request)
        answer.render() if hasattr(answer, "render") and not answer.is_rendered else None
        return answer
