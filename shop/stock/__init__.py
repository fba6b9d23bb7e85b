"""Stock: the only writer of a product's units. Every step is conditional in the database; no network, no HTTP.

A product says how its units are taken (`Product.stock_strategy`; see docs/decisions/stock-strategies.md):

- `conditional`, the default: one row, ``UPDATE … WHERE stock >= n``;
- `version`: one row, ``UPDATE … WHERE version = v``, tried again some times, then under the row's lock;
- `row_lock`: one row, ``SELECT … FOR NO KEY UPDATE`` first;
- `segmented`: several rows, of which a buyer locks one, so that buyers do not wait for each other's commits.

A unit stands in one row: the product's own, or one of its segments, never both (CHECK
`product_units_stand_in_one_place`). No column repeats a sum, because keeping one would lock a row for every order,
which segments are there to spare; who wants the number has it summed up by the database in one statement
(`ProductQuerySet.with_units`), which no move of units can fall between. So it is right, and cannot drift.

No count goes below zero: CHECKs of both tables. A strategy may be changed while orders are on their way
(`shop.stock.moving`): whoever does not find the units where he thought looks again where they are.

Order of locks: products by primary key; of one product its row, then its segments by number. Out of this order a
lock is only taken where it is free, without waiting, so nobody deadlocks. No lock of a product here is stronger
than FOR NO KEY UPDATE: an order's items look their product up FOR KEY SHARE when they are committed.
"""

from collections.abc import Iterable, Iterator, Mapping

from django.db import transaction

from shop.catalog import cache
from shop.errors import OutOfStock
from shop.models import Product, StockStrategy
from shop.stock.moving import arrange
from shop.stock.segmented import Segmented
from shop.stock.single_row import Conditional, RowLock, Version
from shop.stock.strategy import Strategy

__all__ = ["adjust", "arrange", "release", "reserve", "units_of"]

STRATEGIES: Mapping[str, Strategy] = {
    StockStrategy.CONDITIONAL: Conditional(),
    StockStrategy.VERSION: Version(),
    StockStrategy.ROW_LOCK: RowLock(),
    StockStrategy.SEGMENTED: Segmented(),
}


def reserve(*, quantities: Mapping[int, int], buyer: int = 0, products: Iterable[Product] = ()) -> None:
    """Take units off the shelf, all or nothing.

    Args:
        quantities: product primary key -> units, each above zero.
        buyer: any number that differs between buyers, as their primary key: of a segmented product it says where
            to look first.
        products: some of them, if the caller has just read them: spares reading them here. They may be stale.

    Raises:
        OutOfStock: a product has fewer units; the caller's transaction must roll back what was taken before.

    Transaction: needs the caller's; row locks last until it ends.
    """
    known = {product.pk: product for product in products}
    for product_id, quantity in _in_order(quantities):
        product = known.get(product_id) or _look(product_id)
        # in vain means too few units, or that somebody has moved them since they were looked for
        while not STRATEGIES[product.stock_strategy].take(product=product, quantity=quantity, buyer=buyer):
            product = _look(product_id)
            if product.units < quantity:  # type: ignore[attr-defined]
                raise OutOfStock(product.sku)
    cache.forget_copy()


def release(*, quantities: Mapping[int, int]) -> None:
    """Put units back. Only the transition that closes an order may call it, so it happens once an order.

    They need not go back to the segment that they came from.

    Args:
        quantities: product primary key -> units, each above zero.

    Transaction: needs the caller's, the one of that transition.
    """
    for product_id, quantity in _in_order(quantities):
        while True:
            product = _look(product_id)
            if STRATEGIES[product.stock_strategy].put(product=product, quantity=quantity):
                break
    cache.publish_change()


def adjust(*, product_id: int, difference: int) -> bool:
    """Count units in or out of the shelf by hand (a delivery, a breakage).

    A difference and not a new number: orders go on taking units while a person counts.

    Args:
        product_id: primary key.
        difference: units to add; negative to take away.

    Returns:
        Whether it was done; False if fewer units are there than should be taken away.

    Transaction: one of its own, or joins the caller's.
    """
    with transaction.atomic():
        while True:
            product = _look(product_id)
            if product.units + difference < 0:  # type: ignore[attr-defined]
                return False
            if STRATEGIES[product.stock_strategy].adjust(product=product, difference=difference):
                cache.publish_change()
                return True


def units_of(*, product_id: int) -> int:
    """How many units can be ordered now."""
    return int(_look(product_id).units)  # type: ignore[attr-defined]


def _look(product_id: int) -> Product:
    """The product as it is, with `units`."""
    return Product.objects.with_units().get(pk=product_id)


def _in_order(quantities: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    for product_id, quantity in sorted(quantities.items()):
        if quantity <= 0:
            raise ValueError(f"quantity must be above zero, not {quantity}")
        yield product_id, quantity
