"""The basket: units by sku that a guest or member means to order, in the session alone.

A change locks the session's row and writes over its newest content, in the transaction of its request. So ordered
units leave it with the order's commit, two tabs do not undo each other, and the second cannot order the same
again. It reserves nothing: `shop.orders.placing` reads stock and prices again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session

from shop.errors import BasketChanged, BasketFull, FlashSaleOnly, ProductNotFound
from shop.models import Product
from shop.orders.placing import MAX_ITEMS
from shop.platform.sessions import SessionStore

KEY = "basket"
MAX_UNITS = 99  # of one product; for more there is the API

Units = dict[str, int]


@dataclass(frozen=True, slots=True)
class Line:
    """A product in the basket, `product` with its `units`, or None if it is not sold any more."""

    sku: str
    quantity: int
    product: Any

    @property
    def trouble(self) -> str:
        """Reason not to order it as it is; else empty."""
        if self.product is None:
            return "gone"
        if self.product.flash_only:
            return "flash_only"
        if self.product.units < self.quantity:
            return "few" if self.product.units else "sold_out"
        return ""

    @property
    def subtotal_minor(self) -> int:
        return int(self.product.price_minor) * self.quantity if self.product else 0

    @property
    def units(self) -> int:
        """Units that can be ordered now, up to `MAX_UNITS`."""
        sold_here = self.product is not None and not self.product.flash_only
        return min(self.product.units, MAX_UNITS) if sold_here else 0


@dataclass(frozen=True, slots=True)
class Basket:
    lines: list[Line]

    @property
    def totals(self) -> dict[str, int]:
        """Sums in minor units by currency; an order takes one."""
        sums: dict[str, int] = {}
        for line in self.lines:
            if line.product:
                currency = line.product.currency
                sums[currency] = sums.get(currency, 0) + line.subtotal_minor
        return sums

    @property
    def in_stock(self) -> Units:
        """Quantities by sku, lowered to what can be ordered now."""
        return {line.sku: min(line.quantity, line.units) for line in self.lines}

    @property
    def short(self) -> bool:
        return any(line.trouble for line in self.lines)

    @property
    def mixed(self) -> bool:
        return len(self.totals) > 1


def contents(session: SessionBase) -> Units:
    """Return units by sku, in the order in which they were added."""
    return _sound(session.get(KEY))


def look(quantities: Mapping[str, int]) -> Basket:
    """Describe the products of `quantities` at their current prices and stock."""
    products = {product.sku: product for product in Product.objects.filter(sku__in=quantities).with_units()}
    return Basket([Line(sku, quantity, products.get(sku)) for sku, quantity in quantities.items()])


def add(session: SessionStore, *, sku: str, quantity: int) -> None:
    """Add `quantity` units of a product, up to `MAX_UNITS` in all.

    Raises:
        ProductNotFound, FlashSaleOnly, BasketFull: nothing was added.

    Transaction: needs the caller's; the session's row, a guest's first one too, is locked until it ends.
    """
    flash_only = Product.objects.filter(sku=sku).values_list("flash_only", flat=True).first()
    if flash_only is None:
        raise ProductNotFound(sku)
    if flash_only:
        raise FlashSaleOnly(sku)

    def more(units: Units) -> Units:
        if sku not in units and len(units) >= MAX_ITEMS:
            raise BasketFull(sku)
        return {**units, sku: min(units.get(sku, 0) + quantity, MAX_UNITS)}

    session.begin()
    _change(session, more)


def put(session: SessionBase, *, quantities: Mapping[str, int]) -> None:
    """Set the units of products in the basket; 0 removes one. Transaction: as `add`."""
    _change(session, lambda units: {sku: quantities.get(sku, held) for sku, held in units.items()})


def require(session: SessionBase, *, quantities: Mapping[str, int]) -> None:
    """Check that the basket holds these units or more of each product, and lock it.

    Raises:
        BasketChanged: another tab has ordered or removed them.

    Transaction: as `add`, the one that writes the order; before it locks products.
    """
    row = _locked(session)
    held = _sound(row.get_decoded().get(KEY)) if row is not None else {}
    if any(held.get(sku, 0) < max(units, 1) for sku, units in quantities.items()):
        raise BasketChanged


def take_out(session: SessionBase, *, quantities: Mapping[str, int]) -> None:
    """Remove ordered units, in the order's transaction; what another tab has added stays."""
    _change(session, lambda units: {sku: held - quantities.get(sku, 0) for sku, held in units.items()})


def _change(session: SessionBase, change: Callable[[Units], Units]) -> None:
    row = _locked(session)
    if row is None:
        return
    stored: dict[str, Any] = row.get_decoded()
    stored[KEY] = _sound(change(_sound(stored.get(KEY))))
    row.session_data = session.encode(stored)
    row.save(update_fields=["session_data"])
    modified = session.modified
    session[KEY] = stored[KEY]
    session.modified = modified  # saved already; the middleware would overwrite other tabs


def _locked(session: SessionBase) -> Session | None:
    """Lock the session's row; None if the shopper has logged out meanwhile."""
    return Session.objects.select_for_update().filter(session_key=session.session_key).first()


def _sound(found: Any) -> Units:
    """Return the valid part of a stored basket."""
    units = found if isinstance(found, dict) else {}
    return {sku: held for sku, held in list(units.items())[:MAX_ITEMS] if isinstance(held, int) and held > 0}
