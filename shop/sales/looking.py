"""How a sale stands, for who waits."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from django.utils import timezone

from shop import stock
from shop.catalog.cache import Cache
from shop.errors import FlashSaleNotFound
from shop.models import FlashSale
from shop.sales import gate
from shop.sales.sales import sale_of, standing

# of what a process shows of a sale while Redis is away
KEPT_SECONDS = 1.0


class Phase(StrEnum):
    """Where a sale is in its life."""

    UPCOMING = "upcoming"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A sale as it stands, for who waits. A picture of a moment and no promise: `buy` decides.

    Attributes:
        sale: primary key; of the one to come, where none runs.
        units: that the sale has in all.
        left: that nobody has or is just buying.
        starts_at: aware; of a sale that is to come, else None.
        arrivals: how many have come so far; None where only Redis would know.
        place: the asking user's number among them, where it is known.
        bought: whether he has a unit.
    """

    phase: Phase
    sale: int
    units: int
    left: int
    starts_at: datetime | None = None
    arrivals: int | None = None
    place: int | None = None
    bought: bool = False


def look(*, sku: str, user_id: int | None) -> Look:
    """How the product's sale stands: one script of Redis while the sale runs, else the database.

    With Redis away it is up to `KEPT_SECONDS` old, and `bought` alone is looked up for each who asks.

    Args:
        sku: the product.
        user_id: who asks; None is a guest.

    Raises:
        FlashSaleNotFound: it has none.
    """
    told = gate.stand(sku=sku, user_id=user_id)
    if told:
        sale, units, taken, arrivals, bought, place = told
        return Look(
            phase=Phase.RUNNING,
            sale=sale,
            units=units,
            left=max(units - taken, 0),
            arrivals=arrivals,
            place=place or None,
            bought=bool(bought),
        )
    if told is None:
        found = _copies.get(sku, lambda: _look_into_database(sku, take_over=False))
    else:
        found, _ = _look_into_database(sku, take_over=True)
    if found.phase is not Phase.RUNNING or user_id is None:
        return found
    return replace(found, bought=standing(sale=found.sale, buyer=user_id).exists())


def forget() -> None:
    """What this process shows of sales while Redis is away shall be read anew."""
    _copies.forget()


def _look_into_database(sku: str, *, take_over: bool) -> tuple[Look, float]:
    """As a guest sees it, and for how many seconds that may be shown.

    Args:
        sku: the product.
        take_over: have Redis read a sale that runs, so that the next one who asks is answered by it.

    Raises:
        FlashSaleNotFound: it has none.
    """
    now = timezone.now()
    sale = sale_of(sku, now)
    if sale is not None and sale.ends_at > now:
        if take_over:
            gate.take_over(sale, anew=False)
        left = min(sale.units - sale.sold, stock.units_of(product_id=sale.product_id))
        found = Look(phase=Phase.RUNNING, sale=sale.pk, units=sale.sold + left, left=left)
        return found, min((sale.ends_at - now).total_seconds(), KEPT_SECONDS)
    coming = FlashSale.objects.filter(product__sku=sku, starts_at__gt=now)
    following = coming.order_by("starts_at").first()
    if following is not None:
        units = min(following.units, stock.units_of(product_id=following.product_id))
        found = Look(
            phase=Phase.UPCOMING, sale=following.pk, units=units, left=units, starts_at=following.starts_at
        )
        return found, min((following.starts_at - now).total_seconds(), KEPT_SECONDS)
    if sale is None:
        raise FlashSaleNotFound(sku)
    return Look(phase=Phase.ENDED, sale=sale.pk, units=sale.units, left=0), KEPT_SECONDS


_copies: Cache[Look] = Cache()
