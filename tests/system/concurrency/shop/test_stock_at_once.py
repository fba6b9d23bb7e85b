"""Every stock strategy under buyers at the same instant: nothing oversold, lost or made."""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from idempotency.errors import Problem
from idempotency.postgres.statements import UnitOfWork
from shop import sales as flashsale
from shop import stock
from shop.errors import SoldOut
from shop.models import FlashSale, Order, OrderItem, OrderStatus, Product, StockSegment, StockStrategy
from shop.orders import lifecycle
from shop.orders import placing as orders
from tests.threads import at_once

STRATEGIES = list(StockStrategy.values)
LINES = 16

Act = tuple[int, dict[str, int]] | None  # a buyer and what they order; None gives the line's last order back


def all_at_once(lines: Sequence[Sequence[Act]]) -> Counter[str]:
    """Count what came of the acts: `ordered`, `closed` or a refusal's code; a thread a line."""
    return sum(at_once(*[partial(_one_by_one, acts) for acts in lines]), Counter[str]())


def _one_by_one(acts: Sequence[Act]) -> Counter[str]:
    """Each in a transaction of its own."""
    found: Counter[str] = Counter()
    standing: list[Order] = []
    for act in acts:
        try:
            with transaction.atomic():
                if act is not None:
                    standing.append(orders.create_order(user_id=act[0], quantities=act[1]))
                    found["ordered"] += 1
                elif standing:
                    _close(standing.pop())
                    found["closed"] += 1
        except Problem as refusal:
            found[refusal.code] += 1
    return found


def _close(order: Order) -> None:
    Order.objects.filter(pk=order.pk).update(closing_at=timezone.now())
    lifecycle.on_payment(order_id=order.pk, event="closed", work=UnitOfWork())


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
def test_more_buyers_than_units(crowd: list[int], strategy: str) -> None:
    made = product("last", strategy, units=40)

    found = all_at_once([[(user, {"last": 1})] * 4 for user in crowd])

    assert found == {"ordered": 40, "out_of_stock": 24}
    assert (left(made), ordered("last")) == (0, 40)


def test_more_units_than_a_segment_has_are_taken_from_several(crowd: list[int]) -> None:
    made = product("large", StockStrategy.SEGMENTED, units=48, segments=16)

    found = all_at_once([[(user, {"large": 10})] for user in crowd])

    assert found == {"ordered": 4, "out_of_stock": 12}
    assert (left(made), ordered("large")) == (8, 40)
    assert all_at_once([[(crowd[0], {"large": 8})]]) == {"ordered": 1}
    assert left(made) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_products_the_other_way_round(crowd: list[int], strategy: str) -> None:
    """Orders and returns of two products in opposite order do not deadlock."""
    one, other = product("one", strategy, units=150), product("other", strategy, units=150)
    baskets = [{"one": 3, "other": 9}, {"other": 3, "one": 9}]
    acts: list[list[Act]] = [[(user, baskets[n % 2]), None] * 2 for n, user in enumerate(crowd)]

    found = all_at_once(acts)

    assert set(found) <= {"ordered", "closed", "out_of_stock"}
    assert found["closed"] == found["ordered"] > 0
    assert (left(one), left(other)) == (150, 150)


def test_changing_the_strategy_while_buyers_buy(crowd: list[int]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    made = product("moving", StockStrategy.CONDITIONAL, units=60, segments=4)
    acts: list[list[Act]] = [
        [rng.choice([(user, {"moving": rng.randint(1, 5)}), None]) for _ in range(15)] for user in crowd
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
            return all_at_once(acts)
        finally:
            over.set()

    _, found = at_once(move, buy)

    assert set(found) <= {"ordered", "closed", "out_of_stock"}
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
