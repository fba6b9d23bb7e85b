"""An order of the shop as benchmarks place it: token, validation, stock, order, item."""

import itertools
import time
from typing import Any

from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.test import RequestFactory
from rest_framework.authtoken.models import Token

from bench.variants import KEY, SHOP_BODY, SHOP_HEADERS, SHOP_TOKEN
from shop.models import Product

BARE, KEYED = "/api/bare/orders", "/api/v1/orders"

_counter = itertools.count(time.time_ns())
_application = WSGIHandler()


def prepare() -> None:
    """Make the buyer with their token, and the product."""
    user, _ = User.objects.get_or_create(username="bench")
    Token.objects.filter(user=user).delete()
    Token.objects.create(user=user, key=SHOP_TOKEN)
    Product.objects.update_or_create(
        sku="bench-mug", defaults={"name": "Mug", "price_minor": 1990, "stock": 100_000_000}
    )


def orders_a_second(path: str) -> float:
    """Place orders through this process's middleware for a second, each with a fresh key.

    Raises:
        RuntimeError: an order was refused.
    """
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + 1:
        status = _post(path)
        if status != 201:
            raise RuntimeError(f"{path} answered {status}")
        count += 1
    return count / (time.perf_counter() - began)


def _post(path: str) -> int:
    headers = {**SHOP_HEADERS, "Idempotency-Key": f"{KEY}-{next(_counter)}"}
    request = RequestFactory().post(path, SHOP_BODY, content_type="application/json", headers=headers)
    statuses: list[str] = []
    response: Any = _application(request.environ, lambda status, headers: statuses.append(status))
    for _ in response:
        pass
    response.close()
    return int(statuses[0].split()[0])
