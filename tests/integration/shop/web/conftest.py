"""What a shopper has done before the page that is tested."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from shop.models import Order, Product
from tests.integration.shop.web.test_pages import form_of


@pytest.fixture
def order(shopper: Client, demo: User, mug: Product) -> Order:
    shopper.post(
        "/products/mug/buy", form_of(shopper.get("/products/mug"), "/products/mug/buy") | {"quantity": "2"}
    )
    return Order.objects.get()
