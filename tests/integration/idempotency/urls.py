"""A small API whose business table is Django's own `auth_group`: each effect is one more row."""

import uuid
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import Group
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework import serializers
from rest_framework.exceptions import APIException, NotFound, Throttled
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.drf import TokenList
from idempotency.drf import idempotent as idempotent_method
from idempotency.errors import Problem
from idempotency.modes import PHASED
from idempotency.views import idempotent

# what the next phased call does, and what the last one saw; set by the test
PLAN: dict[str, Any] = {}


class ThingRequest(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=20)
    answer = serializers.IntegerField(default=201)
    size = serializers.IntegerField(default=1)


class Unavailable(APIException):
    status_code = 503


class NotBanned(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return not request.user.groups.filter(name="banned").exists()


def effect(name: str) -> Group:
    """One row, with a name that never collides: how many there are is how often it happened."""
    return Group.objects.create(name=f"{name} {uuid.uuid4()}")


class Things(APIView):
    permission_classes = (IsAuthenticated, NotBanned)

    @idempotent_method(body=ThingRequest)
    def post(self, request: Request, *, data: dict[str, Any]) -> Response:
        made = effect(data["name"])
        answer = data["answer"]
        if answer == 404:
            raise NotFound("no such thing")
        if answer == 4040:
            raise Http404
        if answer == 429:
            raise Throttled(wait=7)
        if answer == 500:
            raise RuntimeError("the handler broke")
        if answer == 503:
            raise Unavailable("later")
        if answer >= 400:
            raise Problem(answer, "refused", "No.")
        headers = {"Location": f"/things/{made.pk}", "ETag": '"1"', "X-Other": "not kept"}
        response = Response({"id": made.pk, "pad": "x" * data["size"]}, status=answer, headers=headers)
        response.set_cookie("secret", "cookie")
        return response


class PhasedThings(APIView):
    @idempotent_method(mode=PHASED)
    def post(self, request: Request) -> Response:
        exchange = request.idempotency  # type: ignore[attr-defined]
        PLAN.setdefault("resumed", []).append(exchange.resumed)
        if hook := PLAN.get("during"):
            hook()
        answer = PLAN.get("answer", 201)
        if answer == "crash":
            raise RuntimeError("the handler broke")
        if not exchange.resumed:
            effect("phased")
        return Response({"state": PLAN.get("state", "done")}, status=answer)


@idempotent()
def plain(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return HttpResponse("looked")
    if request.POST.get("refuse"):
        effect("refused")
        raise Problem(409, "refused", "No.")
    made = effect("plain")
    return HttpResponse(f"made {made.pk}", status=303, headers={"Location": f"/things/{made.pk}"})


@idempotent()
def streamed(request: HttpRequest) -> StreamingHttpResponse:
    effect("streamed")

    def chunks() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    return StreamingHttpResponse(chunks(), headers={"Location": "/things/streamed"})


@idempotent()
async def asynchronous(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return HttpResponse("looked")
    if request.GET.get("answer") == "409":
        await Group.objects.acreate(name="undone")
        raise Problem(409, "refused", "No.")
    if request.GET.get("answer") == "500":
        await Group.objects.acreate(name="undone")
        raise RuntimeError("the handler broke")
    made = await Group.objects.acreate(name=request.headers["Idempotency-Key"])
    return HttpResponse(f"made {made.pk}", status=201)


@idempotent()
def not_a_response(request: HttpRequest) -> Any:
    effect("nothing")
    return "text"


urlpatterns = [
    path("things", Things.as_view(), name="things"),
    path("others", Things.as_view(), name="others"),
    path("phased", PhasedThings.as_view(), name="phased"),
    path("plain", plain, name="plain"),
    path("streamed", streamed, name="streamed"),
    path("async", csrf_exempt(asynchronous), name="async"),
    path("nothing", not_a_response, name="nothing"),
    path("tokens", TokenList.as_view(), name="tokens"),
]
