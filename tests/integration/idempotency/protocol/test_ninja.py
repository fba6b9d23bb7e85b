"""Django Ninja's door: what Ninja does before the key and after the handler stays."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from ninja import NinjaAPI, Router, Schema, Status
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.streaming import SSE
from ninja.throttling import BaseThrottle

from idempotency import KeyedCall, Mode, ninja, views
from idempotency.checks.callers import check_callers
from idempotency.checks.views import check_atomic_requests, check_keyed_views
from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.urls import PLAN, effect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class Key(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> str | None:
        return token if token in {"ann", "bob"} else None


class Busy(BaseThrottle):
    def allow_request(self, request: HttpRequest) -> bool:
        return not PLAN.get("busy")

    def wait(self) -> float | None:
        return 7


class OrderIn(Schema):
    sku: str
    quantity: int = 1


class OrderOut(Schema):
    id: int
    sku: str


api = NinjaAPI(urls_namespace="orders", auth=Key(), throttle=[Busy()])
router = Router()


@api.post("/orders", response={201: OrderOut, 422: dict}, openapi_extra={"x-team": "shop"})
@ninja.idempotent
def place_order(request: HttpRequest, order: OrderIn, response: HttpResponse, call: KeyedCall) -> Any:
    """Place an order."""
    made = effect("order")
    call.about("order", made.pk)
    if act := PLAN.get("raise"):
        raise act
    response["ETag"] = '"1"'
    response.set_cookie("secret", "cookie")
    return Status(201, {"id": made.pk, "sku": order.sku, "secret": "is in no schema"})


@router.post("/things", response={200: list[OrderOut]})
@ninja.idempotent(mode=Mode.PHASED, required=False)
async def make_thing(request: HttpRequest, order: OrderIn) -> Any:
    made = await Group.objects.acreate(name=order.sku)
    return [{"id": made.pk, "sku": order.sku}]


api.add_router("/first", router)
other = NinjaAPI(urls_namespace="other", auth=Key())
other.add_router("/second", router)

bare = NinjaAPI(urls_namespace="bare")


@bare.get("/looks")
def look(request: HttpRequest) -> str:
    raise NotImplementedError


@bare.post("/orders")
def unkeyed(request: HttpRequest) -> str:
    raise NotImplementedError


@bare.post("/hooks")
@views.not_keyed
def hook(request: HttpRequest) -> str:
    raise NotImplementedError


urlpatterns = [path("api/", api.urls), path("other/", other.urls), path("bare/", bare.urls)]


def operations(of: NinjaAPI) -> list[Any]:
    return [operation for pattern in of.urls[0] for operation in ninja.operations_of(pattern.callback)]


def post(where: str = "/api/orders", body: Any = None, *, key: str | None = "k1", who: str = "ann") -> Any:
    headers = {"Authorization": f"Bearer {who}"} | ({"Idempotency-Key": key} if key else {})
    sent = {"sku": "mug"} if body is None else body
    return Client(raise_request_exception=False).post(
        where, sent, content_type="application/json", headers=headers
    )


def test_the_answer_is_what_ninja_made_of_the_result(effects: Effects) -> None:
    first, again = post(), post()
    assert first.status_code == 201
    assert first.json() == {"id": Group.objects.get().pk, "sku": "mug"}
    assert (first["ETag"], "secret" in first.cookies) == ('"1"', True)
    assert (again.content, again["ETag"], again["Idempotent-Replayed"]) == (first.content, '"1"', "true")
    assert not again.cookies
    assert LedgerEntry.objects.get().subject == f"order:{first.json()['id']}"
    assert (post(body={"sku": "cup"}).status_code, effects()) == (422, 1)
    assert post(who="bob").json()["id"] != first.json()["id"]


def test_authentication_throttling_and_validation_come_before_the_key(effects: Effects) -> None:
    assert post(who="nobody", key=None).status_code == 401
    PLAN["busy"] = True
    throttled = post(key=None)
    assert (throttled.status_code, throttled["Retry-After"]) == (429, "7")
    PLAN.clear()
    invalid = post(body={"quantity": "many"})
    assert (invalid.status_code, "detail" in invalid.json(), "code" in invalid.json()) == (422, True, False)
    assert (post(key=None).json()["code"], LedgerEntry.objects.count()) == ("idempotency_key_missing", 0)
    assert (post().status_code, effects()) == (201, 1)
    assert post(who="nobody").status_code == 401  # also before a replay


@pytest.mark.parametrize("debug", [False, True])
def test_what_the_api_answers_to_an_error_is_judged_as_any_answer(
    effects: Effects, debug: bool, settings: Any
) -> None:
    settings.DEBUG = debug
    away = OperationalError("gone")
    away.__cause__ = type("Gone", (Exception,), {"sqlstate": "57P01"})()
    for error, status in ((HttpError(503, "later"), 503), (RuntimeError("broke"), 500), (away, 503)):
        PLAN["raise"] = error
        assert (post().status_code, LedgerEntry.objects.count()) == (status, 0)
    for error, status in ((HttpError(409, "no"), 409), (Http404(), 404)):
        PLAN["raise"] = error
        assert [post(key=str(status)).status_code for _ in range(2)] == [status] * 2
        assert LedgerEntry.objects.get(key=str(status)).response_status == status
    PLAN.clear()
    assert (post().status_code, effects()) == (201, 1)


def test_one_router_in_two_apis_is_keyed_in_both(effects: Effects) -> None:
    for where in ("/api/first/things", "/other/second/things"):
        first, again = (post(where, {"sku": where}) for _ in range(2))
        assert (first.status_code, again.content, again["Idempotent-Replayed"]) == (200, first.content, "true")
        assert post(where, {"sku": f"{where} unkeyed"}, key=None).status_code == 200
    assert effects() == 4


def test_the_schema_shows_the_header_and_the_problems() -> None:
    paths = api.get_openapi_schema()["paths"]
    order = paths["/api/orders"]["post"]
    (header,) = order["parameters"]
    assert (header["in"], header["name"], header["required"]) == ("header", "Idempotency-Key", True)
    assert {400, 409, 410, 422} <= set(order["responses"])
    assert "application/problem+json" in order["responses"][422]["content"]
    assert "application/json" in order["responses"][422]["content"]  # the operation's own
    assert order["responses"][201]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/OrderOut"
    }
    assert (order["description"], order["x-team"]) == ("Place an order.", "shop")
    assert json.dumps(order).count("OrderIn") == 1  # no body but the order: `call` is none of its parameters
    (optional,) = paths["/api/first/things"]["post"]["parameters"]
    assert not optional["required"]


def test_annotations_are_resolved_where_the_function_stands() -> None:
    code = (
        "from __future__ import annotations\n"
        "from ninja import NinjaAPI, Schema\n"
        "from idempotency import KeyedCall, ninja\n"
        "class Body(Schema):\n    name: str\n"
        "api = NinjaAPI(urls_namespace='deferred')\n"
        "@api.post('/deferred')\n"
        "@ninja.idempotent\n"
        "def view(request, body: Body, call: KeyedCall) -> str: ...\n"
    )
    names: dict[str, Any] = {"__name__": "deferred"}
    exec(compile(code, "deferred.py", "exec"), names)
    (operation,) = operations(names["api"])
    (model,) = operation.models
    assert model.__ninja_param_source__ == "body"


def test_wrong_use_is_refused() -> None:
    with pytest.raises(TypeError, match=r"stream streams its answer, which cannot be stored"):

        @NinjaAPI(urls_namespace="streams").post("/stream", response=SSE[OrderOut])
        @ninja.idempotent
        def stream(request: HttpRequest) -> Any:
            raise NotImplementedError

    with pytest.raises(TypeError, match=r"unkeyed is an operation of Django Ninja\. Put .* below @api\.post"):
        ninja.idempotent(unkeyed)
    with pytest.raises(TypeError, match="place_order was called by no operation"):
        place_order(RequestFactory().post("/"))


def test_the_setting_takes_operations_with_the_decorator_and_names_the_door_of_others(effects: Effects) -> None:
    for keyed, named in (
        (["/api/", "/other/"], []),
        ("unsafe", ["unkeyed"]),
        (["/bare/orders"], ["unkeyed"]),
        (["/bare/hooks"], []),
    ):
        with override_settings(IDEMPOTENCY={"KEYED": keyed}):
            messages = [message.msg for message in check_keyed_views(None) if message.id == "idempotency.E012"]
            assert post().status_code == post().status_code == 201
        assert [message.partition("cannot key: ")[2].split()[0] for message in messages] == named
        assert all("Put idempotency.ninja.idempotent on it" in message for message in messages)
    assert effects() == 1


def test_the_checks_know_an_apis_callers_and_name_what_atomic_requests_would_wrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with override_settings(MIDDLEWARE=["idempotency.middleware.IdempotencyMiddleware"]):
        assert check_callers(None) == []
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    messages = check_atomic_requests(None)
    assert {message.msg.split()[0].rsplit(".", 1)[1] for message in messages} == {"place_order", "make_thing"}
    assert all("non_atomic_requests(pattern.callback)" in str(message.hint) for message in messages)
