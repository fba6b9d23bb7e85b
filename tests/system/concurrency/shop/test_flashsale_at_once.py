"""Flash sales at the same instant, without Redis and while it forgets."""

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from shop import sales as flashsale
from shop import tasks
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from shop.orders import lifecycle
from tests.integration.shop.conftest import Caller
from tests.integration.shop.settling import keyed
from tests.threads import at_once

UNITS, BUYERS = 10, 30
PATH = "flash-sales/sneaker/orders"


@pytest.fixture
def sale(sneaker: Product) -> FlashSale:
    now = timezone.now()
    return FlashSale.objects.create(
        product=sneaker, units=UNITS, starts_at=now - timedelta(minutes=1), ends_at=now + timedelta(hours=1)
    )


def callers(count: int) -> list[Caller]:
    return [Caller(User.objects.create_user(f"buyer{number}")) for number in range(count)]


def sold_exactly(units: int, sale: FlashSale) -> None:
    sale.refresh_from_db()
    standing = FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True)
    assert sale.sold == standing.count() == units
    assert standing.values("buyer").distinct().count() == units
    assert Order.objects.exclude(status="closed").count() == units
    assert Product.objects.get(pk=sale.product_id).stock == 100 - units


def refusals(answers: list[Any]) -> Counter[str]:
    return Counter(answer.json()["code"] for answer in answers if answer.status_code == 409)


def test_thirty_buyers_for_ten_units_without_redis(sale: FlashSale) -> None:
    crowd = callers(BUYERS)
    with override_settings(IDEMPOTENCY=keyed(False)):
        answers = at_once(*[lambda c=caller: c.post(PATH, key="k") for caller in crowd])

    assert Counter(answer.status_code for answer in answers) == {201: UNITS, 409: BUYERS - UNITS}
    assert refusals(answers) == {"sold_out": BUYERS - UNITS}
    sold_exactly(UNITS, sale)


@pytest.mark.parametrize("redis_there", [True, False], ids=["Redis", "no Redis"])
def test_one_buyer_with_eight_keys(demo: User, sale: FlashSale, redis_there: bool) -> None:
    """The sale's last unit: its buyer hears that, and not that it is gone."""
    FlashSale.objects.update(units=1)
    with override_settings(IDEMPOTENCY=keyed(redis_there)):
        answers = at_once(*[lambda n=n: Caller(demo).post(PATH, key=f"k{n}") for n in range(8)])

    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 7}
    assert refusals(answers) == {"already_bought": 7}
    sold_exactly(1, sale)


def test_redis_is_flushed_all_the_while(sale: FlashSale, redis_server: redis.Redis) -> None:
    crowd = callers(BUYERS)
    over = threading.Event()

    def flush() -> None:
        while not over.wait(0.002):
            redis_server.flushall()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        answers = at_once(*[lambda c=caller: c.post(PATH, key="k") for caller in crowd])
    finally:
        over.set()
        flusher.join()

    # a forgotten marker costs nothing, a forgotten admission lets more through to the database, which refuses
    assert Counter(answer.status_code for answer in answers) == {201: UNITS, 409: BUYERS - UNITS}
    sold_exactly(UNITS, sale)
    tasks.sweep_flash_sales(timestamp=0)
    late = Caller(User.objects.create_user("late"))
    assert late.post(PATH, key="k").json()["code"] == "sold_out"


def test_buying_against_closing(sale: FlashSale) -> None:
    """Units come back while others arrive: no deadlock, no unit lost, none sold twice."""
    crowd = callers(BUYERS)
    early = list(User.objects.order_by("pk")[:UNITS])
    made = []
    for user in early:
        with transaction.atomic():
            made.append(flashsale.buy(sku="sneaker", user_id=user.pk))

    def close(order: Order) -> None:
        for _ in range(2):
            lifecycle.cancel(order_id=order.pk, user_id=order.user_id)
            flashsale.returned(order_id=order.pk)

    answers = at_once(
        *[lambda o=order: close(o) for order in made],
        *[lambda c=caller: c.post(PATH, key="k") for caller in crowd[UNITS:]],
        *[lambda c=caller: c.post(PATH, key="again") for caller in crowd[:UNITS]],
    )

    bought = [answer for answer in answers if answer is not None and answer.status_code == 201]
    assert len(bought) <= UNITS
    sold_exactly(len(bought), sale)
    tasks.sweep_flash_sales(timestamp=0)
    rest = [caller.post(PATH, key="rest") for caller in crowd]
    assert Counter(answer.status_code for answer in rest)[201] == UNITS - len(bought)
    sold_exactly(UNITS, sale)
