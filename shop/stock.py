"""Stock: the only writer of `Product.stock`. Conditional updates, never read-then-write; no network, no HTTP.

Several products are always taken in the order of their primary keys, so two orders naming the same products
the other way round wait for each other instead of deadlocking.
"""

from collections.abc import Mapping

from django.db.models import F

from shop.errors import OutOfStock
from shop.models import Product


def reserve(*, quantities: Mapping[int, int]) -> None:
    """Take units off the shelf, all or nothing.

    Args:
        quantities: product primary key -> units, each above zero.

    Raises:
        OutOfStock: a product has fewer units; the caller's transaction must roll back what was taken before.

    Transaction: needs the caller's; row locks last until it ends.
    """
    for product_id, quantity in sorted(quantities.items()):
        if quantity <= 0:
            raise ValueError(f"quantity must be above zero, not {quantity}")
        taken = Product.objects.filter(pk=product_id, stock__gte=quantity).update(
            stock=F("stock") - quantity, version=F("version") + 1
        )
        if not taken:
            raise OutOfStock(Product.objects.values_list("sku", flat=True).get(pk=product_id))


def release(*, quantities: Mapping[int, int]) -> None:
    """Put units back. Only the transition that closes an order may call it, so it happens once an order.

    Args:
        quantities: product primary key -> units, each above zero.

    Transaction: needs the caller's, the one of that transition.
    """
    for product_id, quantity in sorted(quantities.items()):
        if quantity <= 0:
            raise ValueError(f"quantity must be above zero, not {quantity}")
        Product.objects.filter(pk=product_id).update(stock=F("stock") + quantity, version=F("version") + 1)


def adjust(*, product_id: int, difference: int) -> bool:
    """Count units in or out of the shelf by hand (a delivery, a breakage).

    A difference and not a new number: orders go on taking units while a person counts.

    Args:
        product_id: primary key.
        difference: units to add; negative to take away.

    Returns:
        Whether it was done; False if fewer units are there than should be taken away.

    Transaction: one statement; joins the caller's if there is one.
    """
    return bool(
        Product.objects.filter(pk=product_id, stock__gte=-difference).update(
            stock=F("stock") + difference, version=F("version") + 1
        )
    )
