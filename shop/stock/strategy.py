"""What a way of keeping a product's units must be able to do."""

from typing import Protocol

from shop.models import Product


class Strategy(Protocol):
    """Each answers whether it was done. If not, nothing was changed: there are too few units where it looked, or
    they stand elsewhere by now; the caller looks at the product again. All need the caller's transaction.
    """

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        """Take `quantity` units for an order. `product` may be stale."""
        ...

    def put(self, *, product: Product, quantity: int) -> bool:
        """Put `quantity` units of a closed order back."""
        ...

    def adjust(self, *, product: Product, difference: int) -> bool:
        """Count units in, or out where it is negative."""
        ...
