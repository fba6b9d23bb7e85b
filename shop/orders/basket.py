"""The basket: what a shopper, guest or member, means to order. Units by sku, in the session and nowhere else.

It is written in the transaction of the request that changes it, over what stands in the session's row by then,
with the row locked: so what was ordered leaves it together with the order's commit, two tabs do not undo each
other, and what one of them ordered is not there for the second.
It holds nothing back: stock and prices are looked at again by `shop.orders.placing`.
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
MAX_UNITS = 99  # of one product; who wants more of it asks the API

Units = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A product in the basket.

    Attributes:
        product: None if it is not sold any more.
        trouble: why it cannot be ordered as it is, ``gone``, ``flash_only``, ``sold_out`` or ``few``; else empty.
    """

    sku: str
    quantity: int
    product: Any  # a `Product` with `units`
    trouble: str

    @property
    def subtotal_minor(self) -> int:
        """Price times quantity, in minor units."""
        return int(self.product.price_minor) * self.quantity if self.product else 0


@dataclass(frozen=True, slots=True)
class Basket:
    """The basket as its page shows it."""

    lines: list[Line]

    @property
    def totals(self) -> dict[str, int]:
        """Currency -> sum in minor units; an order has room for one."""
        sums: dict[str, int] = {}
        for line in self.lines:
            if line.product:
                currency = line.product.currency
                sums[currency] = sums.get(currency, 0) + line.subtotal_minor
        return sums

    @property
    def mixed(self) -> bool:
        """Whether it holds prices in more than one currency."""
        return len(self.totals) > 1


def contents(session: SessionBase) -> Units:
    """Units by sku, in the order in which they came."""
    return _sound(session.get(KEY))


def look(quantities: Mapping[str, int]) -> Basket:
    """The products of `quantities` at their prices and with their stock of this moment."""
    products = {product.sku: product for product in Product.objects.filter(sku__in=quantities).with_units()}
    return Basket([_line(sku, quantity, products.get(sku)) for sku, quantity in quantities.items()])


def add(session: SessionStore, *, sku: str, quantity: int) -> None:
    """Put `quantity` more units of a product in, `MAX_UNITS` in all at most.

    Raises:
        ProductNotFound, FlashSaleOnly, BasketFull: nothing was put in.

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
    """Set products that are in the basket to so many units; 0 takes one out.

    Transaction: as `add`.
    """
    _change(session, lambda units: {sku: quantities.get(sku, held) for sku, held in units.items()})


def require(session: SessionBase, *, quantities: Mapping[str, int]) -> None:
    """Go on only while the basket holds these units or more of each product; nobody else takes them out meanwhile.

    Raises:
        BasketChanged: it does not; another tab has ordered them or taken them out.

    Transaction: as `add`, the one that writes the order; before it locks products.
    """
    row = _locked(session)
    held = _sound(row.get_decoded().get(KEY)) if row is not None else {}
    if any(held.get(sku, 0) < max(units, 1) for sku, units in quantities.items()):
        raise BasketChanged


def take_out(session: SessionBase, *, quantities: Mapping[str, int]) -> None:
    """Take so many units out, because they were ordered; what another tab put in meanwhile stays.

    Transaction: as `add`, the one that writes the order.
    """
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
    session.modified = modified  # it is saved already; the middleware would write over others


def _locked(session: SessionBase) -> Session | None:
    """The session's row; None if the shopper logged out meanwhile, and there is no basket any more."""
    return Session.objects.select_for_update().filter(session_key=session.session_key).first()


def _sound(found: Any) -> Units:
    """What of a stored basket is one."""
    units = found if isinstance(found, dict) else {}
    return {sku: held for sku, held in list(units.items())[:MAX_ITEMS] if isinstance(held, int) and held > 0}


def _line(sku: str, quantity: int, product: Any) -> Line:
    trouble = ""
    if product is None:
        trouble = "gone"
    elif product.flash_only:
        trouble = "flash_only"
    elif product.units < quantity:
        trouble = "few" if product.units else "sold_out"
    return Line(sku=sku, quantity=quantity, product=product, trouble=trouble)
