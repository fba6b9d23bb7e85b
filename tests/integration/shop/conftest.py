"""Shoppers, products and scripted channels for the shop's tests; the rest is real."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from payments.errors import ChannelUnavailable
from shop.models import Campaign, Order, Product
from shop.orders import placing as orders
from shop.sales import coupons
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import changed


def placed(user: User, **quantities: int) -> Order:
    """Have the user order these products, by their sku."""
    with transaction.atomic():
        return orders.create_order(user_id=user.pk, quantities=quantities)


@pytest.fixture
def demo(transactional_db: None) -> User:
    return User.objects.create_user("demo", password="demo")


@pytest.fixture
def other(transactional_db: None) -> User:
    return User.objects.create_user("other", password="other")


class Caller:
    """The API client of one user, through the whole middleware stack."""

    def __init__(self, user: User) -> None:
        token, _ = Token.objects.get_or_create(user=user)
        self.http = APIClient()
        self.http.credentials(HTTP_AUTHORIZATION=f"Token {token.key}")

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(f"/api/v1/{path}", headers=headers)

    def post(self, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.http.post(f"/api/v1/{path}", body, format="json", headers=headers)

    def order(self, sku: str = "mug", quantity: int = 1, *, key: str) -> Any:
        return self.post("orders", {"items": [{"sku": sku, "quantity": quantity}]}, key=key)


@pytest.fixture
def caller(demo: User) -> Caller:
    return Caller(demo)


@pytest.fixture
def stranger(other: User) -> Caller:
    return Caller(other)


@pytest.fixture
def shopper(demo: User) -> Client:
    """The demo user's browser, CSRF checks on."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(demo)
    return client


@pytest.fixture
def mug(transactional_db: None) -> Product:
    return Product.objects.create(sku="mug", name="Mug", picture="mug", price_minor=1990, stock=100)


@pytest.fixture
def poster(transactional_db: None) -> Product:
    return Product.objects.create(sku="poster", name="Poster", price_minor=4500, stock=10)


@pytest.fixture
def sneaker(transactional_db: None) -> Product:
    return Product.objects.create(sku="sneaker", name="Sneaker", price_minor=29900, stock=100, flash_only=True)


@pytest.fixture
def campaign(transactional_db: None) -> Campaign:
    """Two coupons of 15 %."""
    with transaction.atomic():
        coupons.open_campaign(slug="welcome", name="Welcome", name_zh="新人券", count=2, percent_off=15)
    return Campaign.objects.get()


@pytest.fixture
def channels(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Both channels, each a provider that the test scripts."""
    providers = {name: ScriptedProvider(name) for name in ("wechat", "alipay")}
    settings.PAYMENTS = changed(PROVIDERS={name: {} for name in providers})

    def provider(channel: str) -> ScriptedProvider:
        if channel not in providers:
            raise ChannelUnavailable("choose another")
        return providers[channel]

    monkeypatch.setattr("payments.attempts.calling.provider", provider)
    return providers
