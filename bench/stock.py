"""The stock strategies under many writers: orders of one product a second, against one row's conditional UPDATE.

A writer is a process that places orders as the shop does (`orders.create_order`, a COMMIT that is on the disk).
The bound is the same with a product for each writer: nobody waits for anybody. Once with the database beside the
writers, where two cores are the limit sooner than the row's lock; then with round trips of 1 and 10 ms to it,
which leave the processor idle and hold the lock for several of them.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Sum

from bench.report import write
from shop import stock
from shop.models import OrderItem, Product, StockStrategy
from shop.orders import placing as orders

ROUNDS = 5
SECONDS = 3.0  # of a turn
WRITERS = 16
SEGMENTS = 16
USERS = 1000
UNITS = 1_000_000
TRIPS_MS = (0.0, 1.0, 10.0)
WANTED_RATIO = 2.0

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Way:
    """A strategy, and how many products the writers share."""

    title: str
    strategy: StockStrategy
    products: int = 1


ONE_ROW = Way("`conditional` (default)", StockStrategy.CONDITIONAL)
SEGMENTED = Way(f"`segmented`, {SEGMENTS} rows", StockStrategy.SEGMENTED)
BOUND = Way("a product for each writer", StockStrategy.CONDITIONAL, WRITERS)
WAYS = (
    ONE_ROW,
    Way("`version`", StockStrategy.VERSION),
    Way("`row_lock`", StockStrategy.ROW_LOCK),
    SEGMENTED,
    BOUND,
)

Seen = dict[tuple[float, str], list[float]]


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/stock.*.

    Raises:
        AssertionError: a unit was sold twice, or lost.
    """
    parser = argparse.ArgumentParser(prog="python -m bench stock")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each strategy in each round")
    given = parser.parse_args(arguments)
    call_command("migrate", verbosity=0)
    made = User.objects.bulk_create([User(username=f"stock-{token_hex(8)}") for _ in range(USERS)])
    users = [user.pk for user in made]
    before = os.getloadavg()[0]
    seen: Seen = defaultdict(list)
    for number in range(given.rounds):
        for trip_ms in TRIPS_MS:
            for way in WAYS[::-1] if number % 2 else WAYS:
                seen[trip_ms, way.title].append(_turn(way, users, trip_ms / 1e3, given.seconds))
        print(f"stock: round {number + 1}/{given.rounds}", flush=True)
    _report(seen, given, before)


def _turn(way: Way, users: list[int], trip_seconds: float, seconds: float) -> float:
    """Orders a second of all writers; checks that every unit is where it should be."""
    products = [
        Product.objects.create(sku=f"stock-{token_hex(8)}", name="Mug", price_minor=1990, stock=UNITS)
        for _ in range(way.products)
    ]
    for product in products:
        stock.arrange(product_id=product.pk, strategy=way.strategy, segments=SEGMENTS)
    connection.close()
    placed = _fork.Array("q", WRITERS)
    ready = _fork.Barrier(WRITERS)

    def write_orders(number: int) -> None:
        rng, sku = random.Random(number), products[number % len(products)].sku
        with connection.execute_wrapper(_travel(trip_seconds)):
            _order(rng.choice(users), sku)  # connects, and is not counted
            ready.wait()
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                _order(rng.choice(users), sku)
                placed[number] += 1

    writers = [_fork.Process(target=write_orders, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"{way.title}: a writer ended with {writer.exitcode}")
    left = sum(stock.units_of(product_id=product.pk) for product in products)
    ordered = OrderItem.objects.filter(product__in=products).aggregate(units=Sum("quantity"))["units"]
    assert left + ordered == UNITS * way.products, "a unit was sold twice, or lost"
    assert ordered == sum(placed) + WRITERS, "an order is missing"
    return sum(placed) / seconds


def _order(user_id: int, sku: str) -> None:
    with transaction.atomic():
        orders.create_order(user_id=user_id, quantities={sku: 1})


def _travel(seconds: float) -> Any:
    """Each statement takes a while to get to the database, as over a network."""

    def execute(then: Any, *arguments: Any) -> Any:
        if seconds:
            time.sleep(seconds)
        return then(*arguments)

    return execute


def _report(seen: Seen, given: argparse.Namespace, load_before: float) -> None:
    def ratio(trip_ms: float, way: Way, base: Way) -> float:
        pairs = zip(seen[trip_ms, way.title], seen[trip_ms, base.title], strict=True)
        return statistics.median(one / other for one, other in pairs)

    groups = {trip_ms: f"{trip_ms:g} ms to the database" for trip_ms in TRIPS_MS}
    rows = [
        [
            f"{trip_ms:g}",
            way.title,
            f"{statistics.median(seen[trip_ms, way.title]):.0f}",
            f"{ratio(trip_ms, way, ONE_ROW):.2f}",
            f"{ratio(trip_ms, way, BOUND):.2f}",
        ]
        for trip_ms in TRIPS_MS
        for way in WAYS
    ]
    reached = [group for trip_ms, group in groups.items() if ratio(trip_ms, SEGMENTED, ONE_ROW) >= WANTED_RATIO]
    write(
        name="stock",
        title=f"Orders of one product, {WRITERS} writers",
        columns=("ms to the database", "strategy", "orders/s", "ratio to one row", "part of the bound"),
        rows=rows,
        bars={
            group: [(way.title, ratio(trip_ms, way, ONE_ROW)) for way in WAYS] for trip_ms, group in groups.items()
        },
        bases=(ONE_ROW.title,),
        x_label="orders a second, ratio to one row and a conditional UPDATE",
        note=(
            f"{given.rounds} rounds of {given.seconds:g} s each, interleaved; medians, the ratio of each round's "
            f"own ratios. A writer is a process; each order is committed with fsync, by one of {USERS} buyers. "
            "The bound: a product for each writer, so that no lock is waited for. The time to the database is "
            f"slept before each statement. `segmented` at {WANTED_RATIO:g} times one row was wanted: reached with "
            f"{' and '.join(reached) or 'none'}. Load average of the machine before: {load_before:.1f}."
        ),
    )
