"""A small API whose effects are rows of Django's own `auth_group`."""

import uuid
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.gzip import gzip_page
from rest_framework import authentication, serializers
from rest_framework.exceptions import APIException, Throttled
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.permissions import AllowAny, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from idempotency.call import KeyedCall
from idempotency.drf import IdempotentMixin, TokenList
from idempotency.drf import idempotent as idempotent_method
from idempotency.errors import Problem
from idempotency.modes import PHASED
from idempotency.protocol.recovery import NoOp, Phases, Progress, RecoveryPoint
from idempotency.protocol.recovery import Response as StepResponse
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


# what the steps do, and what they saw; set by the test
STEPS: dict[str, Any] = {}
steps = Phases("tests.steps")


class Killed(BaseException):
    """As good as SIGKILL: nothing of ours runs after it."""


def _pass(point: str) -> None:
    """Note a step, and die there on request; only an outside one has no transaction."""
    STEPS["calls"].append(point)
    assert connection.in_atomic_block is (point != "reserved")
    if STEPS.get("die_at") == point:
        raise Killed


@steps.atomic("started")
def start(progress: Progress) -> Any:
    effect("started")
    _pass("started")
    return STEPS.get("inside") or RecoveryPoint("reserved")


@steps.outside("reserved")
def call_outside(progress: Progress) -> Any:
    if hook := STEPS.get("during"):
        hook()
    _pass("reserved")
    planned = STEPS.get("outside")
    if isinstance(planned, Exception):
        raise planned
    return planned or RecoveryPoint("charged", {"receipt": f"r-{progress.data['amount']}"})


@steps.atomic("charged")
def charge(progress: Progress) -> NoOp:
    effect("charged")
    _pass("charged")
    return NoOp()


@steps.atomic("noted")
def note(progress: Progress) -> StepResponse:
    _pass("noted")
    return StepResponse(201, progress.data, {"Location": "/steps/1"})


class Steps(APIView):
    @idempotent_method(mode=steps)
    def post(self, request: Request) -> HttpResponseBase:
        return steps.respond(request, {"amount": request.data["amount"]})


def everyone(request: Any) -> str:
    return "everyone"


def note_replay(request: Any, response: Any) -> None:
    response["X-Replays"] = "of all"


def planned_principal(request: Any) -> Any:
    return PLAN["principal"]


class PhasedThings(APIView):
    @idempotent_method(mode=PHASED)
    def post(self, request: Request, *, call: KeyedCall) -> Response:
        PLAN.setdefault("resumed", []).append(call.resumed)
        if subject := PLAN.get("about"):
            call.about(*subject)
        if hook := PLAN.get("during"):
            hook()
        answer = PLAN.get("answer", 201)
        if answer == "crash":
            raise RuntimeError("the handler broke")
        PLAN["answer"] = PLAN.pop("then", answer)
        if not call.resumed:
            effect("phased")
        return Response({"state": PLAN.get("state", "done")}, status=answer)


class HeldThings(APIView):
    """Atomic, and stands still where the test wants it."""

    @idempotent_method(body=ThingRequest)
    def post(self, request: Request, *, data: dict[str, Any]) -> Response:
        if hook := PLAN.get("during"):
            hook()
        answer = PLAN.get("answer", 201)
        PLAN["answer"] = PLAN.pop("then", answer)
        effect("held")
        return Response({"state": "done"}, status=answer)


@idempotent()
def plain(request: HttpRequest) -> HttpResponse:
    if request.method in {"GET", "HEAD", "OPTIONS"}:
        PLAN.setdefault("seen", []).append(connection.in_atomic_block)
        return HttpResponse("looked")
    if request.POST.get("refuse"):
        effect("refused")
        raise Problem(409, "refused", "No.")
    made = effect("plain")
    return HttpResponse(f"made {made.pk}", status=303, headers={"Location": f"/things/{made.pk}"})


@idempotent()
def nested(request: HttpRequest) -> HttpResponse:
    """A third party's view: one row in a transaction of its own."""
    with transaction.atomic():
        made = effect("nested")
    return HttpResponse(f"made {made.pk}", status=201)


@idempotent()
@gzip_page
def zipped(request: HttpRequest) -> HttpResponse:
    effect("zipped")
    return HttpResponse("long " * 200, content_type="text/plain")


@idempotent()
def long(request: HttpRequest) -> HttpResponse:
    effect("long")
    return HttpResponse("long " * 200, content_type="text/plain")


@idempotent()
def upload(request: HttpRequest) -> HttpResponse:
    effect("uploaded")
    return HttpResponse(request.FILES["file"].read()[:100], status=201)


@idempotent()
def bodyless(request: HttpRequest) -> HttpResponse:
    effect("bodyless")
    return HttpResponse(status=PLAN["status"], headers={"ETag": '"7"'})


@idempotent()
def session(request: HttpRequest) -> HttpResponse:
    effect("session")
    request.session["visits"] = request.session.get("visits", 0) + 1
    response = HttpResponse(f"visit {request.session['visits']}")
    response.set_cookie("taste", "sweet")
    return response


@idempotent
def checkout(request: HttpRequest) -> HttpResponse:
    """Order, and note the order in the session."""
    request.session["order"] = effect("order").pk
    if hook := PLAN.pop("during", None):
        hook()
    return HttpResponse(status=303, headers={"Location": "/thanks"})


class Credentials(authentication.BaseAuthentication):
    """As an API knows its callers that has no users: by what is in the header, or in the token."""

    def authenticate(self, request: Request) -> Any:
        given = request.META.get("HTTP_AUTHORIZATION")
        return (PLAN.get("user"), PLAN["credentials"][given]) if given else None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class Open(APIView):
    """For everybody, by sessions, by credentials, or by nothing."""

    permission_classes = (AllowAny,)
    throttle_classes = ()

    @idempotent_method
    def post(self, request: Request) -> Response:
        return Response({"id": effect("open").pk}, status=201)


def refusing(request: HttpRequest) -> HttpResponse:
    if refusal := PLAN.pop("refusal", None):
        raise refusal
    effect("refusing")
    return HttpResponse("made", status=201)


@idempotent()
def hooked(request: HttpRequest) -> HttpResponse:
    """What waits for the commit fails after it."""
    effect("hooked")

    def fail() -> None:
        raise PLAN["raise"]

    transaction.on_commit(fail)
    return HttpResponse("hooked", status=201)


@idempotent()
async def slow(request: HttpRequest) -> HttpResponse:
    await Group.objects.acreate(name="slow")
    PLAN["inside"].set()
    await PLAN["go"].wait()
    return HttpResponse("done", status=201)


class Mixed(IdempotentMixin, APIView):
    parser_classes = (JSONParser, MultiPartParser)

    def post(self, request: Request) -> Response:
        return Response({"id": effect("mixed").pk}, status=201)


class MixedChild(Mixed):
    def post(self, request: Request) -> Response:
        response = super().post(request)
        response.data["child"] = effect("child").pk
        return response


class MixedSet(IdempotentMixin, ViewSet):
    def create(self, request: Request) -> Response:
        return Response({"id": effect("mixed").pk}, status=201)


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
    made = await Group.objects.acreate(name=request.headers["Idempotency-Key"])
    return HttpResponse(f"made {made.pk}", status=201)


@idempotent()
def not_a_response(request: HttpRequest) -> Any:
    effect("nothing")
    return "text"


urlpatterns = [
    path("things", Things.as_view(), name="things"),
    path("others", Things.as_view(), name="others"),
    path("nested", csrf_exempt(nested)),
    path("zipped", csrf_exempt(zipped)),
    path("long", csrf_exempt(long)),
    path("upload", csrf_exempt(upload)),
    path("bodyless", csrf_exempt(bodyless)),
    path("session", csrf_exempt(session)),
    path("checkout", csrf_exempt(checkout)),
    path("open/default", Open.as_view()),
    path("open/credentials", Open.as_view(authentication_classes=[Credentials])),
    path("open/nobody", Open.as_view(authentication_classes=[])),
    path("open/tokens", TokenList.as_view(permission_classes=[AllowAny])),
    path("hooked", csrf_exempt(hooked)),
    path("slow", csrf_exempt(slow)),
    path("refusing/atomic", csrf_exempt(idempotent()(refusing))),
    path("refusing/phased", csrf_exempt(idempotent(mode=PHASED)(refusing))),
    path("mixed", Mixed.as_view()),
    path("child", MixedChild.as_view()),
    path("set", MixedSet.as_view({"post": "create"})),
    path("held", HeldThings.as_view(), name="held"),
    path("steps", Steps.as_view(), name="steps"),
    path("phased", PhasedThings.as_view(), name="phased"),
    path("plain", plain, name="plain"),
    path("streamed", streamed, name="streamed"),
    path("async", csrf_exempt(asynchronous), name="async"),
    path("nothing", not_a_response, name="nothing"),
    path("tokens", TokenList.as_view(), name="tokens"),
]


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("not found", status=404)
