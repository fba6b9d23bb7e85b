"""Change of a product's stock strategy while orders take units: all move at once.

The product's row is locked, then its segments in order. The units are counted under the locks and written in the
same transaction, so none is lost or made; what waited for the locks finds them gone and reads the product again.
"""

from typing import Any

from django.db import transaction
from django.db.models import F

from shop.catalog import cache
from shop.models import Product, StockSegment, StockStrategy
from shop.stock.segmented import divided


def arrange(*, product_id: int, strategy: str, segments: int, before: dict[str, Any] | None = None) -> bool:
    """Have the product's units taken by `strategy` from now on.

    Args:
        strategy: one of `StockStrategy` (CHECK `product_stock_strategy_is_known`).
        segments: of a segmented product, 1 to `SEGMENTS_MAX` (CHECK); stored for any other.
        before: `strategy` and `segments` as the caller saw them; None: whatever they are.

    Returns:
        False if they have changed since; nothing was written then.

    Transaction: one of its own, or joins the caller's. Waits for orders that hold units without commit.
    """
    with transaction.atomic():
        product = Product.objects.select_for_update(no_key=True).get(pk=product_id)
        if before not in (None, {"strategy": product.stock_strategy, "segments": product.stock_segments}):
            return False
        rows = StockSegment.objects.filter(product=product_id)
        held = rows.order_by("number").select_for_update()
        units = product.stock + sum(row.units for row in held)
        rows.delete()
        apart = strategy == StockStrategy.SEGMENTED
        Product.objects.filter(pk=product_id).update(
            stock=0 if apart else units,
            stock_strategy=strategy,
            stock_segments=segments,
            version=F("version") + 1,
        )
        if apart:
            StockSegment.objects.bulk_create(
                StockSegment(product_id=product_id, number=number, units=part)
                for number, part in enumerate(divided(units, segments))
            )
        cache.publish_change()
        return True
