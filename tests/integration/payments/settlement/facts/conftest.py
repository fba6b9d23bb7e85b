"""Orders with attempts, and providers that a test scripts."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from payments.attempts import opening as attempts
from payments.channels import configured as channels
from payments.models import Attempt
from shop.models import Order, Product
from shop.orders import placing as orders
from tests.integration.payments.settlement.facts.bank import Bank

PRICE_MINOR = 1990


@pytest.fixture
def banks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Bank]:
    """Two providers that the test scripts, in place of both channels."""
    made = {name: Bank(name) for name in ("wechat", "alipay")}
    monkeypatch.setattr(channels, "current", lambda: made)
    return made


def make_order() -> Order:
    """A pending order of one mug."""
    Product.objects.get_or_create(sku="mug", defaults={"name": "Mug", "price_minor": PRICE_MINOR, "stock": 10**6})
    owner, _ = User.objects.get_or_create(username="demo")
    with transaction.atomic():
        return orders.create_order(user_id=owner.pk, quantities={"mug": 1})


def make_attempt(order: Order | None = None, channel: str = "wechat") -> Attempt:
    """An attempt of `order` (a new one if None), committed and not yet submitted."""
    order = order or make_order()
    with transaction.atomic():
        return attempts.open_attempt(
            order_id=order.id,
            owner_id=order.user_id,
            amount_minor=order.total_minor,
            currency=order.currency,
            channel=channel,
            description="PayOnce order",
            expires_at=timezone.now() + timedelta(minutes=30),
        )
