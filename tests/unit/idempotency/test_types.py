"""A project's code, which `make lint` types strictly without a `type: ignore`."""

from typing import Any, assert_type

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.generics import CreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from idempotency import KeyedCall, Mode, NoOp, Phases, Progress, call_of, drf, idempotent, once
from idempotency import Response as Answer
from idempotency.cachedmap import CachedMap
from idempotency.locks import aio

steps = Phases("tests.types")


@steps.atomic("started")
def start(progress: Progress) -> NoOp:
    return NoOp()


@steps.outside("called")
def call_out(progress: Progress) -> Answer:
    return Answer(201, {"resumed": progress.resumed})


@idempotent
def plain(request: HttpRequest, call: KeyedCall) -> HttpResponse:
    call.about("order", 7)
    return HttpResponse(call.key_digest)


@idempotent(wait=2, ignore=["sent_at"], required=lambda request: request.method == "POST")
async def asynchronous(request: HttpRequest) -> HttpResponse:
    call_of(request).set_lifetime(5)
    return HttpResponse()


@idempotent(mode=steps)
def phased(request: HttpRequest) -> HttpResponseBase:
    return steps.respond(request, {"amount": 5})


class Generic(CreateAPIView[User]):
    @drf.idempotent
    def create(self, request: Request, *args: Any, call: KeyedCall, **kwargs: Any) -> Response:
        return super().create(request, *args, **kwargs)

    @drf.idempotent(wait=2)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().post(request, *args, **kwargs)


class Users(drf.IdempotentMixin, ModelViewSet[User]):
    idempotent_handlers = {"create": Mode.ATOMIC, "destroy": {"required": False}}


@once.task("tests.types", key=lambda number: number)
def task(number: int) -> dict[str, int]:
    return {"number": number}


@once.task("tests.types.called", key=lambda number: number)
def task_with_call(number: int, call: KeyedCall) -> dict[str, int]:
    call.about("number", number)
    return {"number": number}


def run() -> int:
    result: dict[str, int] = task(7)
    return result["number"] + task_with_call(7)["number"]


async def answers(request: HttpRequest, names: CachedMap[str]) -> None:
    assert_type(plain(request), HttpResponse)
    assert_type(await asynchronous(request), HttpResponse)
    assert_type((names.get("7"), await names.aget("7")), tuple[str | None, str | None])
    assert_type((names.get("7", 0), await names.aget("7", 0)), tuple[str | int, str | int])
    async with aio.Lock("orders") as lock:
        assert_type((await lock.acquire(), await lock.owner()), tuple[bool, aio.Owner | None])


def test_each_is_keyed() -> None:
    of_rest = (Generic.create, Generic.post, Users.create, Users.destroy)
    assert all(hasattr(handler, "idempotency_mode") for handler in (plain, asynchronous, phased, *of_rest))
