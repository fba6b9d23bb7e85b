"""One handler behind every kind of view: `/marked/` has its decorator, `/named/` none."""

from functools import partial, wraps
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_http_methods
from ninja import Form, NinjaAPI
from ninja.errors import HttpError
from rest_framework.decorators import api_view, parser_classes, permission_classes
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from idempotency import drf, ninja, views
from idempotency.errors import Problem
from tests.integration.idempotency.urls import effect

MAY = "auth.add_group"


def same(handler: Any) -> Any:
    return handler


def answer(made: Group, asked: str) -> HttpResponse:
    if asked == "404":
        raise Http404
    if asked == "409":
        raise Problem(409, "refused", "No.")
    if asked == "500":
        raise RuntimeError("the handler broke")
    return HttpResponse(f"made {made.pk}", status=201, headers={"Location": f"/things/{made.pk}"})


def plain(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return HttpResponse("looked")
    return answer(effect("plain"), request.POST.get("answer", ""))


async def asynchronous(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return HttpResponse("looked")
    return answer(await Group.objects.acreate(name="async"), request.POST.get("answer", ""))


class May(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user.has_perm(MAY)


class Guarded:
    permission_classes = (May,)
    parser_classes = (MultiPartParser,)


def of_rest_framework(request: Request) -> Response:
    found = answer(effect("rest"), request.data.get("answer", ""))
    return Response(found.content.decode(), status=found.status_code, headers={"Location": found["Location"]})


guarded = permission_required(MAY, raise_exception=True)


def kinds(door: Any, door_of_methods: Any) -> dict[str, Any]:
    class Open(View):
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("looked")

        def post(self, request: HttpRequest) -> HttpResponse:
            return plain(request)

    class Class(PermissionRequiredMixin, Open):
        permission_required = MAY
        raise_exception = True

    @method_decorator(guarded, name="dispatch")
    class Dispatched(Open):
        """The same by a decorator."""

    class AsyncOpen(View):
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("looked")

        async def post(self, request: HttpRequest) -> HttpResponse:
            return await asynchronous(request)

    class AsyncClass(AsyncOpen):
        pass

    @method_decorator(door, name="dispatch")
    class AsyncWhole(AsyncOpen):
        pass

    class Rest(Guarded, APIView):
        def get(self, request: Request) -> Response:
            return Response("looked")

        @door_of_methods
        def post(self, request: Request) -> Response:
            return of_rest_framework(request)

    class Rests(Guarded, ViewSet):
        def list(self, request: Request) -> Response:
            return Response("looked")

        @door_of_methods
        def create(self, request: Request) -> Response:
            return of_rest_framework(request)

    @api_view(["GET", "POST"])
    @door_of_methods
    @permission_classes([May])
    @parser_classes([MultiPartParser])
    def by_api_view(request: Request) -> Response:
        return Response("looked") if request.method == "GET" else of_rest_framework(request)

    if door is not same:
        for cls in (Class, Dispatched, AsyncClass):
            method_decorator(door, name="post")(cls)
    return {
        "function": guarded(require_http_methods(["GET", "POST"])(door(plain))),
        "async function": guarded(door(asynchronous)),
        "class": Class.as_view(),
        "class with a decorator": Dispatched.as_view(),
        "async class": guarded(AsyncClass.as_view()),
        "async class as a whole": guarded(AsyncWhole.as_view()),
        "APIView": Rest.as_view(),
        "ViewSet": Rests.as_view({"get": "list", "post": "create"}),
        "api_view": by_api_view,
    }


def may(request: HttpRequest) -> Any:
    if not request.user.has_perm(MAY):
        raise HttpError(403, "You may not.")
    return request.user


def operations() -> dict[str, Any]:
    """The views of Ninja, whose door is its decorator also where the setting names them."""
    api = NinjaAPI(urls_namespace="doors", auth=may)

    @api.get("/sync")
    def look(request: HttpRequest) -> str:
        return "looked"

    @api.post("/sync", response={201: str})
    @ninja.idempotent
    def make(request: HttpRequest, response: HttpResponse, asked: str = Form("", alias="answer")) -> str:
        found = answer(effect("ninja"), asked)
        response["Location"] = found["Location"]
        return found.content.decode()

    @api.get("/async")
    async def alook(request: HttpRequest) -> str:
        return "looked"

    @api.post("/async", response={201: str})
    @ninja.idempotent
    async def amake(request: HttpRequest, response: HttpResponse, asked: str = Form("", alias="answer")) -> str:
        found = answer(await Group.objects.acreate(name="ninja"), asked)
        response["Location"] = found["Location"]
        return found.content.decode()

    found, *_ = api.urls
    return {
        f"Ninja {pattern.pattern}": pattern.callback
        for pattern in found
        if str(pattern.pattern) in {"sync", "async"}
    }


@views.not_keyed
def exempt(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"made {effect('exempt').pk}")


class Partly(Guarded, APIView):
    """One method is exempt."""

    @views.not_keyed
    def put(self, request: Request) -> Response:
        return Response(effect("put").pk)

    def post(self, request: Request) -> Response:
        return of_rest_framework(request)


def hiding(view: Any) -> Any:
    """Hide the view from us; the decorator may be what authorises."""
    views_held = [view]

    @wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        return guarded(views_held[0])(request)

    return wrapper


NINJA = operations()
MARKED = {**kinds(views.idempotent, drf.idempotent), **NINJA}
NAMED = {
    **kinds(same, same),
    "in a transaction": guarded(transaction.atomic(plain)),
    "with arguments": partial(guarded(plain)),
}

urlpatterns = [
    *(path(f"marked/{kind}", view) for kind, view in MARKED.items()),
    *(path(f"named/{kind}", view) for kind, view in NAMED.items()),
    path("named/exempt", exempt),
    path("named/partly", Partly.as_view()),
]


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("not found", status=404)


def handler500(request: HttpRequest) -> HttpResponse:
    return HttpResponse("broken", status=500)
