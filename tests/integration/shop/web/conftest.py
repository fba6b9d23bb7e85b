"""What a shopper has done before the page that is tested."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from shop.models import Order, Product
from tests.integration.shop.web.test_pages import Visit, buy


@pytest.fixture
def order_id(caller: Any, mug: Product, channels: Any) -> str:
    """An order of the API's with an open payment by WeChat."""
    made: str = caller.order(quantity=1, key="place").json()["id"]
    caller.post(f"orders/{made}/payment", {"channel": "wechat"}, key="pay")
    return made


@pytest.fixture
def order(shopper: Client, demo: User, mug: Product) -> Order:
    buy(shopper, quantity="2")
    return Order.objects.get()


@pytest.fixture
def visit(shopper: Client, order: Order, channels: Any) -> Visit:
    return Visit(shopper, order, channels)
