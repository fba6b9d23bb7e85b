"""Every stock strategy under buyers of several processes at the same instant: nothing oversold, lost or made."""

import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from shop import sales as flashsale
from shop import stock
from shop.errors import SoldOut
from shop.models import FlashSale, Order, OrderItem, OrderStatus, Product, StockSegment, StockStrategy
from tests.system.concurrency.shop.buyers import Buyers
from tests.threads import at_once

STRATEGIES = list(StockStrategy.values)
LINES = 16


@pytest.fixture(scope="module")
def buyers(django_db_setup: None) -> Iterator[Buyers]:
    started = Buyers(database=connection.settings_dict["NAME"])
    yield started
    started.stop()


@pytest.fixture
def crowd(transactional_db: None) -> list[int]:
    """Users, a primary key a line."""
    return [User.objects.create_user(f"buyer{number}").pk for number in range(LINES)]


def product(sku: str, strategy: str, *, units: int, segments: int = 4, **more: Any) -> Product:
    made = Product.objects.create(sku=sku, name=sku, price_minor=100, stock=units, **more)
    stock.arrange(product_id=made.pk, strategy=strategy, segments=segments)
    return made


def left(made: Product) -> int:
    return stock.units_of(product_id=made.pk)


def ordered(sku: str) -> int:
    """Units in orders that stand."""
    standing = OrderItem.objects.filter(sku=sku).exclude(order__status=OrderStatus.CLOSED)
    return standing.aggregate(units=Sum("quantity"))["units"] or 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_more_buyers_than_units(buyers: Buyers, crowd: list[int], strategy: str) -> None:
    made = product("last", strategy, units=40)

    found = buyers.all_at_once([[["buy", user, {"last": 1}]] * 4 for user in crowd])

    assert found == {"ordered": 40, "out_of_stock": 24}
    assert (left(made), ordered("last")) == (0, 40)


def test_more_units_than_a_segment_has_are_taken_from_several(buyers: Buyers, crowd: list[int]) -> None:
    made = product("large", StockStrategy.SEGMENTED, units=48, segments=16)

    found = buyers.all_at_once([[["buy", user, {"large": 10}]] for user in crowd])

    assert found == {"ordered": 4, "out_of_stock": 12}
    assert (left(made), ordered("large")) == (8, 40)
    assert buyers.all_at_once([[["buy", crowd[0], {"large": 8}]]]) == {"ordered": 1}
    assert left(made) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_products_the_other_way_round(buyers: Buyers, crowd: list[int], strategy: str) -> None:
    """Orders and returns of two products, more than a segment has of each, in opposite order: nobody deadlocks."""
    one, other = product("one", strategy, units=150), product("other", strategy, units=150)
    baskets = [{"one": 3, "other": 9}, {"other": 3, "one": 9}]
    acts = [[["buy", user, baskets[n % 2]], ["return"]] * 2 for n, user in enumerate(crowd)]

    found = buyers.all_at_once(acts)

    assert set(found) <= {"ordered", "closed", "nothing", "out_of_stock"}
    assert found["closed"] == found["ordered"] > 0
    assert (left(one), left(other)) == (150, 150)


def test_changing_the_strategy_while_buyers_buy(buyers: Buyers, crowd: list[int]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    made = product("moving", StockStrategy.CONDITIONAL, units=60, segments=4)
    acts = [
        [rng.choice([["buy", user, {"moving": rng.randint(1, 5)}], ["return"]]) for _ in range(15)]
        for user in crowd
    ]
    over = threading.Event()
    turns: list[int] = []

    def move() -> None:
        while not over.is_set() or len(turns) < len(STRATEGIES):
            strategy = STRATEGIES[len(turns) % len(STRATEGIES)]
            stock.arrange(product_id=made.pk, strategy=strategy, segments=rng.randint(1, 8))
            assert stock.adjust(product_id=made.pk, difference=1)
            turns.append(1)

    def buy() -> Any:
        try:
            return buyers.all_at_once(acts)
        finally:
            over.set()

    _, found = at_once(move, buy)

    assert set(found) <= {"ordered", "closed", "nothing", "out_of_stock"}
    assert found["ordered"] > 0
    assert left(made) + ordered("moving") == 60 + len(turns)
    made.refresh_from_db()
    in_segments = StockSegment.objects.filter(product=made).aggregate(units=Sum("units"))["units"] or 0
    assert made.stock + in_segments == left(made)


@pytest.mark.parametrize("strategy", [StockStrategy.ROW_LOCK, StockStrategy.SEGMENTED])
def test_a_flash_sale_takes_from_the_same_rows(crowd: list[int], strategy: str) -> None:
    made, now = product("rush", strategy, units=8, flash_only=True), timezone.now()
    FlashSale.objects.create(
        product=made, units=8, starts_at=now - timedelta(seconds=1), ends_at=now + timedelta(hours=1)
    )

    def buy(user: int) -> str:
        try:
            with transaction.atomic():
                flashsale.buy(sku="rush", user_id=user)
        except SoldOut as refusal:
            return refusal.code
        return "ordered"

    found = at_once(*[lambda u=user: buy(u) for user in crowd[:12]])

    assert sorted(found) == ["ordered"] * 8 + ["sold_out"] * 4
    assert (left(made), Order.objects.count()) == (0, 8)
