"""The examples of the pages about doors run as printed."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.apps.registry import Apps
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection, models
from django.http import JsonResponse
from django.test import Client, RequestFactory
from django.urls import path
from ninja import NinjaAPI, Schema
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from idempotency.models import LedgerEntry, State
from tests import pages

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

(README,) = pages.blocks("README.md")
SETTINGS, FIRST = pages.blocks("docs/tutorial/first-keyed-view.md")
(OPTIONS,) = pages.blocks("docs/how-to/key-your-views.md")
REST, GENERIC = pages.blocks("docs/how-to/use-rest-framework.md")
(NINJA,) = pages.blocks("docs/how-to/use-django-ninja.md")
REFUND, CHARGE = pages.blocks("docs/how-to/call-a-provider.md")
(PARTNERS,) = pages.blocks("docs/how-to/name-the-caller.md")
(GUESTS,) = pages.blocks("docs/how-to/serve-guests.md")


class Order(models.Model):
    """Order of the reader's project; whose it is does not matter here."""

    sku = models.CharField(max_length=20)
    amount = models.IntegerField(null=True)
    receipt = models.CharField(max_length=40, default="")
    user = owner = property(None, lambda order, user: None)

    class Meta:
        app_label = "page"
        apps = Apps()
        managed = False


class OrderSerializer(ModelSerializer[Order]):
    class Meta:
        model = Order
        fields = ("id", "sku")


class OrderIn(Schema):
    sku: str


class OrderOut(OrderIn):
    id: int


class Provider:
    """The outside world. Its answers to `late` calls are lost."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.late = 0

    def find(self, number: str) -> dict[str, str] | None:
        return {"refund": number} if number in dict(self.done) else None

    def refund(self, number: str, amount: str) -> dict[str, str]:
        self.charge(number, amount)
        return {"refund": number}

    def charge(self, number: str, amount: Any) -> str:
        self.done.append((number, amount))
        if self.late:
            self.late -= 1
            raise TimeoutError
        return f"receipt of {number}"


provider = Provider()
api = NinjaAPI(urls_namespace="page", auth=lambda request: request.user)
OF_PLAIN = {"Order": Order, "JsonResponse": JsonResponse, "provider": provider}
OF_REST = {"APIView": APIView, "ModelViewSet": ModelViewSet, "Response": Response, "api_view": api_view}
OF_NINJA = {"api": api, "OrderIn": OrderIn, "OrderOut": OrderOut, "Order": Order}

pages.run(NINJA, **OF_NINJA)
guests = pages.run(GUESTS, **OF_PLAIN)
rest = pages.run(REST + GENERIC, **OF_REST, Order=Order, OrderSerializer=OrderSerializer)

urlpatterns = [
    path("first", pages.run(FIRST, **OF_PLAIN)["buy"]),
    path("options", pages.run(OPTIONS, **OF_PLAIN)["buy"]),
    path("refund", pages.run(REFUND, **OF_PLAIN)["refund"]),
    path("charge", pages.run(CHARGE, **OF_PLAIN)["create_charge"]),
    path("guests/basket", guests["basket"]),
    path("guests/order", guests["order"]),
    path("ninja/", api.urls),
    path("rest", rest["Orders"].as_view()),
    path("rest/<int:pk>/again", rest["reorder"]),
    path("set", rest["OrderSet"].as_view({"post": "create"})),
    path("set/<int:pk>", rest["OrderSet"].as_view({"delete": "destroy"})),
]

Send = Callable[..., Any]


@pytest.fixture(autouse=True)
def _orders(transactional_db: None) -> Iterator[None]:
    provider.__init__()  # type: ignore[misc]
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Order)


@pytest.fixture
def send(user: User) -> Send:
    """A logged-in caller, who sends a form or, to REST framework and Ninja, JSON."""
    client = Client()
    client.force_login(user)

    def send(to: str, body: Any = None, *, key: str | None = "k1", method: str = "post") -> Any:
        options: dict[str, Any] = {"headers": {"Idempotency-Key": key} if key else {}}
        if not to.startswith(("/first", "/options", "/refund", "/charge")):
            options["content_type"] = "application/json"
        return getattr(client, method)(to, {"sku": "mug"} if body is None else body, **options)

    return send


def is_replay(answer: Any, of: Any) -> bool:
    return (answer.status_code, answer.content, answer.get("Idempotent-Replayed")) == (
        *(of.status_code, of.content),
        "true",
    )


def happens_once(send: Send, to: str) -> Any:
    """Send it twice; the first answer, which the second is a replay of."""
    first, again = send(to), send(to)
    assert first.status_code == 201, first.content
    assert is_replay(again, first)
    return first


def test_the_settings_are_those_of_the_foreign_projects() -> None:
    written = SETTINGS.partition("\n")[2].replace('"redis://127.0.0.1:6379/0"', 'os.environ["REDIS_URL"]')
    assert written in pages.text_of("tests/foreign/project/with_redis.py")
    without = 'IDEMPOTENCY = {"REDIS": None}'
    assert f"`{without}`" in pages.text_of("docs/tutorial/first-keyed-view.md")
    assert without in pages.text_of("tests/foreign/project/without_redis.py")


def test_the_first_view_and_a_policy_of_its_own(send: Send) -> None:
    assert README == FIRST
    assert happens_once(send, "/first").json() == {"id": Order.objects.get().pk}
    first = happens_once(send, "/options")
    assert is_replay(send("/options", {"sku": "mug", "sent_at": "later"}), first)
    assert LedgerEntry.objects.latest("pk").subject == f"order:{first.json()['id']}"
    assert send("/options", key=None).status_code == 201
    assert Order.objects.count() == 3


def test_rest_framework(send: Send) -> None:
    assert send("/rest", {"sku": ""}, key=None).json()["code"] == "validation_failed"
    first = happens_once(send, "/rest")
    assert first.json() == {"id": Order.objects.get().pk, "sku": "mug"}
    assert LedgerEntry.objects.get().subject == f"order:{first.json()['id']}"
    assert happens_once(send, f"/rest/{first.json()['id']}/again").json()["sku"] == "mug"
    assert Order.objects.count() == 2


def test_problems_of_rest_framework_whatever_the_handler(send: Send, settings: Any) -> None:
    for handler, code in (("idempotency.drf", "malformed"), ("rest_framework.views", None)):
        settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": f"{handler}.exception_handler"}
        missing, unreadable = send("/rest", key=None), send("/rest", "{")
        assert missing["Content-Type"] == "application/problem+json"
        assert missing.json()["code"] == "idempotency_key_missing"
        assert (unreadable.status_code, unreadable.json().get("code")) == (400, code)


def test_generic_views_of_rest_framework(send: Send) -> None:
    made = happens_once(send, "/set").json()["id"]
    gone, again = (send(f"/set/{made}", key="k2", method="delete") for _ in range(2))
    assert (gone.status_code, is_replay(again, gone)) == (204, True)
    assert send(f"/set/{made}", key=None, method="delete").status_code == 404


def test_ninja(send: Send) -> None:
    first = happens_once(send, "/ninja/orders")
    assert first.json() == {"id": Order.objects.get().pk, "sku": "mug"}
    assert LedgerEntry.objects.get().subject == f"order:{first.json()['id']}"


def test_a_provider_that_answers_late_is_asked_and_sent_nothing_again(send: Send) -> None:
    provider.late = 1
    unknown, known, again = (send("/refund", {"amount": "5"}) for _ in range(3))
    ((number, amount),) = provider.done
    assert (unknown.status_code, unknown.json()) == (202, {"number": number})
    assert (known.status_code, known.json(), again.content) == (202, {"refund": number}, known.content)
    assert (amount, LedgerEntry.objects.get().state) == ("5", State.FINISHED)
    assert [send("/refund", {"amount": "5"}, key="k2").status_code for _ in range(2)] == [201, 201]
    assert len(provider.done) == 2


def test_recovery_points(send: Send) -> None:
    first, again = (send("/charge", {"amount": "5"}) for _ in range(2))
    order = Order.objects.get()
    assert first.json() == {"amount": 5, "order": order.pk, "receipt": order.receipt}
    assert (is_replay(again, first), provider.done) == (True, [(f"order-{order.pk}", 5)])


def test_a_caller_that_is_no_user(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = pages.run(PARTNERS)
    place: Any = ModuleType("project.api")
    place.principal = names["principal"]
    monkeypatch.setitem(sys.modules, place.__name__, place)
    settings.IDEMPOTENCY = names["IDEMPOTENCY"]
    buy = pages.run(FIRST, **OF_PLAIN)["buy"]

    def ask(partner: int) -> Any:
        request: Any = RequestFactory().post("/first", {"sku": "mug"}, headers={"Idempotency-Key": "k1"})
        request.partner, request.user = SimpleNamespace(pk=partner), AnonymousUser()
        return buy(request)

    for partner in (1, 2):
        first, again = ask(partner), ask(partner)
        assert is_replay(again, first)
    assert Order.objects.count() == 2


def order_of(guest: Client, key: str) -> Any:
    return guest.post("/guests/order", {"sku": "mug"}, headers={"Idempotency-Key": key})


def test_guests_are_known_by_the_session_of_the_page_before(user: User) -> None:
    guests = [Client(), Client()]
    for guest in guests:
        assert guest.get("/guests/basket").json() == {"lines": []}
        first, again = order_of(guest, "k1"), order_of(guest, "k1")
        assert is_replay(again, first)
    guest.force_login(user)
    assert "Idempotent-Replayed" not in order_of(guest, "k1"), "who logs in between is another caller"
    assert Order.objects.count() == 3


def test_guests_without_a_session_send_keys_that_cannot_be_guessed_or_are_turned_away(settings: Any) -> None:
    assert order_of(Client(), "k1").json()["code"] == "idempotency_key_weak"
    key = str(uuid4())
    first, again = order_of(Client(), key), order_of(Client(), key)
    assert is_replay(again, first)
    (written,) = re.findall(r"`IDEMPOTENCY = (\{.*\})`", pages.text_of("docs/how-to/serve-guests.md"))
    settings.IDEMPOTENCY = settings.IDEMPOTENCY | ast.literal_eval(written)
    assert order_of(Client(), str(uuid4())).status_code == 403
    assert Order.objects.count() == 1
