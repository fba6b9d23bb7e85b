"""Every address of the API and every page of somebody's own, asked by others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token

from payments.models import Payment
from shop.models import Order, Product
from tests.integration.shop.conftest import Caller, placed

# sound ones, so that nothing but the caller is wrong
BODIES: dict[str, Any] = {
    "orders_create": {"items": [{"sku": "mug", "quantity": 1}]},
    "orders_edit": {"note": "mine"},
    "orders_pay": {"channel": "wechat"},
    "payments_refund": {"amount_minor": 1, "reason": "mine"},
}
HEADERS = {"Idempotency-Key": "k1", "If-Match": '"1"'}
OPEN_TO_ALL = {
    "/",
    "/api",  # there is nothing
    "/<path:address>",  # as little
    "/favicon.ico",
    "/basket",
    "/accounts/login/",
    "/accounts/logout/",
    "/i18n/setlang/",
}
OPEN_BEGINNINGS = ("/api/", "/admin/", "/webhooks/", "/products/", "/flash-sales/", "/basket/")


def operations() -> list[tuple[str, str, str]]:
    """Method, path and id of every call that the API describes."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return [
        (method.upper(), path, said["operationId"])
        for path, methods in schema["paths"].items()
        for method, said in methods.items()
        if path.startswith("/api/v1/")
    ]


@pytest.fixture
def paid(demo: Any, mug: Product) -> Order:
    """The demo user's order, with a payment."""
    order = placed(demo, mug=1)
    Payment.objects.create(order_id=order.id, owner=demo, amount_minor=1990, currency="CNY")
    return order


def filled(path: str, order: Order) -> str:
    one = Payment.objects.get(order_id=order.id) if "/payments/" in path else order
    return path.format(id=one.id.hex, sku="mug", campaign="welcome", key="k1")


def test_the_api_is_closed_to_guests_and_to_others_orders(client: Client, stranger: Caller, paid: Order) -> None:
    for method, path, name in operations():
        address, body = filled(path, paid), BODIES.get(name, {})
        guest = client.generic(method, address, "{}", content_type="application/json", headers=HEADERS)
        assert (guest.status_code, guest["Content-Type"]) == (401, "application/problem+json"), name
        if "{id}" in path:
            answer = stranger.http.generic(method, address, json.dumps(body), "application/json", headers=HEADERS)
            assert answer.status_code == 404, (name, answer.content)
    paid.refresh_from_db()
    assert (paid.status, paid.version, paid.note) == ("pending", 1, "")


def routes(resolver: URLResolver, before: str = "/") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from routes(pattern, route)


def test_every_page_of_somebodys_own_is_closed_to_guests_and_others(
    client: Client, stranger: Caller, paid: Order
) -> None:
    own = [route for route in routes(get_resolver()) if not route.startswith(OPEN_BEGINNINGS)]
    own = [route for route in own if route not in OPEN_TO_ALL]
    assert {"/orders", "/orders/<hexid:order_id>", "/orders/<hexid:order_id>/refund"} <= set(own)
    other = Client()
    other.force_login(User.objects.get(username="other"))
    for route in own:
        address = route.replace("<hexid:order_id>", paid.id.hex).replace("<slug:campaign>", "welcome")
        for method in ("get", "post"):
            guest = getattr(client, method)(address)
            assert guest.status_code in {302, 401, 405}, address
            assert guest.status_code != 302 or guest["Location"].startswith("/accounts/login/"), address
            if paid.id.hex in address:
                answer = getattr(other, method)(address)
                assert answer.status_code in {302, 400, 404, 405}, address
                assert "19.90" not in answer.text, address
    paid.refresh_from_db()
    assert (paid.status, paid.version) == ("pending", 1)


def test_a_token_is_looked_up_in_one_statement_and_only_of_who_is_active(demo: User, caller: Caller) -> None:
    token = Token.objects.get(user=demo)
    with CaptureQueriesContext(connection) as asked:
        seen, said = TokenAuthentication().authenticate_credentials(token.key)
    assert (len(asked), said) == (1, token)
    fields = [field.attname for field in User._meta.concrete_fields]
    assert [getattr(seen, name) for name in fields] == [getattr(demo, name) for name in fields]

    def refused() -> bool:
        answer = caller.get("orders")
        return (answer.status_code, answer.json().get("code")) == (401, "not_authenticated")

    User.objects.update(is_active=False)
    assert refused()
    User.objects.update(is_active=True)
    token.delete()
    assert refused()


class TestATokenEndsWithThePassword:
    NEW = "another secret 7"

    @pytest.mark.parametrize("way", ["by the admin", "shut by the admin", "alone"])
    def test_however_it_is_changed(self, admin_client: Client, demo: User, caller: Caller, way: str) -> None:
        assert caller.get("orders").status_code == 200
        if way == "alone":
            demo.set_password(self.NEW)
            demo.save(update_fields=["password"])
        else:
            body = {"password1": self.NEW, "password2": self.NEW, "usable_password": "true", "set-password": ""}
            if way == "shut by the admin":
                body = {"usable_password": "false", "unset-password": ""}
            assert admin_client.post(f"/admin/auth/user/{demo.pk}/password/", body).status_code == 302
        demo.refresh_from_db()
        assert (demo.check_password("demo"), caller.get("orders").status_code) == (False, 401)

    def test_and_with_nothing_else(self, demo: User, caller: Caller, client: Client, settings: Any) -> None:
        """A login may hash the same password again with today's parameters."""
        before = demo.password
        settings.PASSWORD_HASHERS = [
            "django.contrib.auth.hashers.ScryptPasswordHasher",
            *settings.PASSWORD_HASHERS,
        ]
        client.post("/accounts/login/", {"username": "demo", "password": "demo"})
        demo.refresh_from_db()
        assert demo.password != before
        demo.first_name = "Ann"
        demo.save()
        assert (demo.check_password("demo"), caller.get("orders").status_code) == (True, 200)
