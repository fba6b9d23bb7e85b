"""Each stock strategy against a plain number, and what the database refuses."""

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from shop import sales as flashsale
from shop import stock
from shop.errors import OutOfStock
from shop.models import FlashSale, Product, StockSegment, StockStrategy
from shop.stock.segmented import Segmented
from shop.stock.single_row import TRIES
from tests.integration.shop.conftest import Caller
from tests.threads import at_once

STRATEGIES = list(StockStrategy.values)


def in_segments(product: Product) -> list[int]:
    return list(StockSegment.objects.filter(product=product).order_by("number").values_list("units", flat=True))


def reserve(product: Product, quantity: int, *, buyer: int = 0) -> bool:
    try:
        with transaction.atomic():
            stock.reserve(quantities={Product.objects.get(pk=product.pk): quantity}, buyer=buyer)
    except OutOfStock:
        return False
    return True


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_a_number_that_is_never_below_zero(mug: Product, strategy: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    units = 100
    stock.arrange(product_id=mug.pk, strategy=strategy, segments=7)
    for _ in range(30):
        quantity = rng.choice([1, 1, 2, 5, 30])
        match rng.choice(["reserve", "reserve", "reserve", "release", "adjust", "arrange"]):
            case "reserve":
                done = reserve(mug, quantity, buyer=rng.randrange(100))
                assert done == (quantity <= units)
                units -= quantity * done
            case "release":
                with transaction.atomic():
                    stock.release(quantities={mug.pk: quantity})
                units += quantity
            case "adjust":
                difference = rng.choice([-1, 1]) * quantity
                done = stock.adjust(product_id=mug.pk, difference=difference)
                assert done == (units + difference >= 0)
                units += difference * done
            case "arrange":
                stock.arrange(product_id=mug.pk, strategy=strategy, segments=rng.randint(1, 9))
        assert stock.units_of(product_id=mug.pk) == units
        mug.refresh_from_db()
        assert mug.stock + sum(in_segments(mug)) == units


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("conditional", "segmented"),
        ("row_lock", "conditional"),
        ("segmented", "version"),
        ("segmented", "segmented"),
        ("version", "row_lock"),
    ],
)
def test_units_that_were_moved_are_found(mug: Product, before: str, after: str) -> None:
    """As if another process changed the strategy after this one had read the product."""
    stock.arrange(product_id=mug.pk, strategy=before, segments=4)
    read_before = Product.objects.get()
    stock.arrange(product_id=mug.pk, strategy=after, segments=3)
    with transaction.atomic():
        stock.reserve(quantities={read_before: 40}, buyer=0)
    assert stock.units_of(product_id=mug.pk) == 60
    for way in stock.STRATEGIES.values():  # each either finds the units or changes nothing
        with transaction.atomic():
            found = [
                way.take(product=read_before, quantity=70, buyer=0),
                way.put(product=read_before, quantity=2),
                way.adjust(product=read_before, difference=-1),
            ]
        assert found == [False, *[isinstance(way, Segmented) == (after == "segmented")] * 2]
    assert stock.units_of(product_id=mug.pk) == 60 + (1 if after == "segmented" else 3)


def test_a_buyer_begins_at_the_home_segment_and_goes_round(mug: Product) -> None:
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=4)
    assert reserve(mug, 25, buyer=4 * 9 + 2)
    assert in_segments(mug) == [25, 25, 0, 25]
    assert reserve(mug, 20, buyer=2)
    assert in_segments(mug) == [25, 25, 0, 5]
    assert reserve(mug, 40, buyer=3)
    assert in_segments(mug) == [0, 15, 0, 0]


def test_a_buyer_does_not_wait_for_a_busy_segment(mug: Product) -> None:
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=2)
    with transaction.atomic():
        stock.reserve(quantities={Product.objects.get(): 1}, buyer=0)
        at_once(lambda: reserve(mug, 1, buyer=0))  # without it, for ever: this transaction holds its segment
    assert in_segments(mug) == [49, 49]


def test_the_database_refuses(mug: Product) -> None:
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=4)
    for rows, values, constraint in (
        (StockSegment.objects, {"units": -1}, "stock_segment_never_below_zero"),
        (StockSegment.objects, {"number": 0}, "stock_segment_once_per_number"),
        (Product.objects, {"stock": 1}, "product_units_stand_in_one_place"),
        (Product.objects, {"stock_strategy": "guess"}, "product_stock_strategy_is_known"),
        (Product.objects, {"stock_segments": 65}, "product_stock_segments_are_few"),
    ):
        with pytest.raises(IntegrityError, match=constraint):
            rows.update(**values)


def test_who_always_loses_by_version_is_served_by_the_lock(mug: Product) -> None:
    """Somebody buys before each conditional update; a retry loop would go on for ever."""
    stock.arrange(product_id=mug.pk, strategy="version", segments=4)
    lost = []

    def somebody_buys(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and len(lost) < TRIES:
            lost.append(sql)
            at_once(lambda: reserve(mug, 1))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(somebody_buys):
        assert reserve(mug, 1)

    assert len(lost) == TRIES
    assert stock.units_of(product_id=mug.pk) == 100 - TRIES - 1


def test_readers_see_the_sum(caller: Caller, shopper: Client, mug: Product, sneaker: Product) -> None:
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=4)
    stock.arrange(product_id=sneaker.pk, strategy="segmented", segments=4)

    assert caller.get("products/mug").json()["stock"] == 100
    assert [one["stock"] for one in caller.get("products").json()] == [100, 100]
    assert 'max="99"' in shopper.get("/products/mug").text
    assert caller.order("mug", 99, key="k").status_code == 201
    assert caller.order("mug", 2, key="l").json()["code"] == "out_of_stock"
    assert caller.get("products/mug").json()["stock"] == 1
    now = timezone.now()
    sale = FlashSale.objects.create(product=sneaker, units=100, starts_at=now, ends_at=now + timedelta(hours=1))
    assert flashsale.reconcile(sale=sale) == 0
    assert caller.post("flash-sales/sneaker/orders", key="m").status_code == 201
    assert caller.get("products/sneaker").json()["stock"] == 99
