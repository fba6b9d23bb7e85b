"""Stock: a product's units, changed by conditional UPDATEs. Their only writer.

A product names its strategy (`Product.stock_strategy`; see docs/decisions/stock-strategies.md):

- `conditional`, the default: one row, ``UPDATE … WHERE stock >= n``;
- `version`: one row, ``UPDATE … WHERE version = v``, tried again some times, then under the row's lock;
- `row_lock`: one row, ``SELECT … FOR NO KEY UPDATE`` first;
- `segmented`: several rows, of which a buyer locks one, so that buyers do not wait for each other's commits.

A unit is in one row: the product's own, or one of its segments (CHECK `product_units_stand_in_one_place`). No
column repeats a sum, which would lock a row for every order; `ProductQuerySet.with_units` has the database sum it
up in one statement, so the number cannot drift. No count goes below zero: CHECKs of both tables. A strategy may
change while orders take units (`shop.stock.moving`): a caller that misses them reads the product again.

Lock order: products by primary key; of one product its row, then its segments by number. A lock out of this order
is taken without waiting or not at all, so nothing deadlocks. No lock is stronger than FOR NO KEY UPDATE: the items
of an order look their product up FOR KEY SHARE at the commit.
"""

from collections.abc import Mapping

from django.db import transaction

from shop.catalog import cache
from shop.errors import OutOfStock
from shop.models import Product, StockStrategy
from shop.stock.moving import arrange
from shop.stock.segmented import Segmented
from shop.stock.single_row import Conditional, RowLock, Version

__all__ = ["adjust", "arrange", "release", "reserve", "units_of"]

# methods return whether it was done, in the caller's transaction; if not, nothing changed: too few units, or they
# have moved, and the caller reads the product again
STRATEGIES: Mapping[str, Conditional | Segmented] = {
    StockStrategy.CONDITIONAL: Conditional(),
    StockStrategy.VERSION: Version(),
    StockStrategy.ROW_LOCK: RowLock(),
    StockStrategy.SEGMENTED: Segmented(),
}


def reserve(*, quantities: Mapping[Product, int], buyer: int) -> None:
    """Take units off the shelf, all or nothing.

    Args:
        quantities: product, which may be stale -> units, each above zero (CHECK `item_quantity_is_positive`).
        buyer: a number that differs between buyers, such as their primary key: it picks the first segment.

    Raises:
        OutOfStock: a product has fewer units; the caller's transaction must roll back what was taken.

    Transaction: needs the caller's; row locks last until it ends.
    """
    for wanted, quantity in sorted(quantities.items(), key=lambda item: item[0].pk):
        product = wanted
        while not STRATEGIES[product.stock_strategy].take(product=product, quantity=quantity, buyer=buyer):
            product = _read(wanted.pk)
            if product.units < quantity:  # type: ignore[attr-defined]
                raise OutOfStock(product.sku)
    cache.forget_copy()


def release(*, quantities: Mapping[int, int]) -> None:
    """Put units back, into any segment. Only the step that closes an order calls it.

    Transaction: needs the caller's, the one of that step.
    """
    for product_id, quantity in sorted(quantities.items()):
        while True:
            product = _read(product_id)
            if STRATEGIES[product.stock_strategy].put(product=product, quantity=quantity):
                break
    cache.publish_change()


def adjust(*, product_id: int, difference: int) -> bool:
    """Count units in or out by hand (a delivery, a breakage).

    A difference and not a new number: orders take units while a person counts.

    Returns:
        False if there are fewer units than to take away; nothing was changed.

    Transaction: one of its own, or joins the caller's.
    """
    with transaction.atomic():
        while True:
            product = _read(product_id)
            if product.units + difference < 0:  # type: ignore[attr-defined]
                return False
            if STRATEGIES[product.stock_strategy].adjust(product=product, difference=difference):
                cache.publish_change()
                return True


def units_of(*, product_id: int) -> int:
    """Return how many units can be ordered now."""
    return int(_read(product_id).units)  # type: ignore[attr-defined]


def _read(product_id: int) -> Product:
    return Product.objects.with_units().get(pk=product_id)
