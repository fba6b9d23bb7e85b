"""Stock strategies under sixteen writers of one product, against one row's UPDATE.

A writer is a process that places orders as the shop does, each with a COMMIT that is on the disk. The bound is a
product for each writer, so that no lock is waited for. Round trips of 1 and 10 ms to the database leave the
processor idle and hold the lock for several of them.
"""

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from secrets import token_hex
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Sum

from bench.harness import FORK, fork_all, options, take_turns
from bench.report import compare
from shop import stock
from shop.models import OrderItem, Product, StockStrategy
from shop.orders import placing as orders

WRITERS = SEGMENTS = 16
USERS = 1000
UNITS = 1_000_000
TRIPS_MS = (0.0, 1.0, 10.0)
ONE_ROW = "`conditional` (default)"
# title -> strategy, and the number of products that the writers share
WAYS = {
    ONE_ROW: (StockStrategy.CONDITIONAL, 1),
    "`version`": (StockStrategy.VERSION, 1),
    "`row_lock`": (StockStrategy.ROW_LOCK, 1),
    f"`segmented`, {SEGMENTS} rows": (StockStrategy.SEGMENTED, 1),
    "a product for each writer": (StockStrategy.CONDITIONAL, WRITERS),
}


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/stock.*.

    Raises:
        AssertionError: a unit was sold twice, or lost.
    """
    given = options("stock", arguments, rounds=5, seconds=3.0)
    call_command("migrate", verbosity=0)
    made = User.objects.bulk_create([User(username=f"stock-{token_hex(8)}") for _ in range(USERS)])
    users, seen = [user.pk for user in made], {}
    for trip_ms in TRIPS_MS:
        ways = {title: partial(_turn, *way, users, trip_ms / 1e3, given.seconds) for title, way in WAYS.items()}
        seen[f"{trip_ms:g} ms to the database"] = take_turns(f"stock, {trip_ms:g} ms", ways, rounds=given.rounds)
    note = (
        f"{given.rounds} rounds of {given.seconds:g} s. {WRITERS} writers; each order is committed with fsync, by "
        f"one of {USERS} buyers. The time to the database is slept before each statement."
    )
    compare("stock", "Orders of one product", seen, base=ONE_ROW, unit="orders", note=note)


def _turn(strategy: StockStrategy, count: int, users: list[int], trip_seconds: float, seconds: float) -> float:
    """Return the orders a second of all writers, after a count of every unit."""
    products = [
        Product.objects.create(sku=f"stock-{token_hex(8)}", name="Mug", price_minor=1990, stock=UNITS)
        for _ in range(count)
    ]
    for product in products:
        stock.arrange(product_id=product.pk, strategy=strategy, segments=SEGMENTS)
    connection.close()  # a forked process must not share the connection
    placed = FORK.Array("q", WRITERS)

    def write_orders(number: int) -> Iterator[None]:
        rng, sku = random.Random(number), products[number % count].sku
        with connection.execute_wrapper(partial(_travel, trip_seconds)):
            _order(rng.choice(users), sku)  # connects, and is not counted
            yield
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                _order(rng.choice(users), sku)
                placed[number] += 1

    fork_all(WRITERS, write_orders)
    left = sum(stock.units_of(product_id=product.pk) for product in products)
    ordered = OrderItem.objects.filter(product__in=products).aggregate(units=Sum("quantity"))["units"]
    assert left + ordered == UNITS * count, "a unit was sold twice, or lost"
    assert ordered == sum(placed) + WRITERS, "an order is missing"
    return sum(placed) / seconds


@transaction.atomic
def _order(user_id: int, sku: str) -> None:
    orders.create_order(user_id=user_id, quantities={sku: 1})


def _travel(seconds: float, then: Any, *arguments: Any) -> Any:
    """Delay a statement as a network would."""
    if seconds:
        time.sleep(seconds)
    return then(*arguments)
