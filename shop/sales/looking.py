"""Snapshots of a sale for the pages of those who wait."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from django.utils import timezone

from idempotency.cachedmap import CachedMap, Entry
from shop import stock
from shop.errors import FlashSaleNotFound
from shop.models import FlashSale
from shop.sales import gate
from shop.sales.sales import purchases, sale_of

# life of a snapshot in a process while Redis is away
SNAPSHOT_SECONDS = 1.0


class Phase(StrEnum):
    UPCOMING = "upcoming"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Snapshot of a sale, and no promise: `buy` decides.

    Attributes:
        sale: primary key; of the next one, where none runs.
        units: of the sale in all.
        left: neither sold nor being bought.
        starts_at: aware; None unless the sale is to come.
        arrivals: number of buyers so far; None without Redis.
        place: of the user among them, if known.
        bought: the user has a unit.
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
    """Read a snapshot of the product's sale: from Redis while it runs, else the database.

    Without Redis it is up to `SNAPSHOT_SECONDS` old, and only `bought` is read for each user; None is a guest.
    Raises FlashSaleNotFound: the product has none.
    """
    found = gate.snapshot(sku=sku, user_id=user_id)
    if found:
        sale, units, taken, arrivals, bought, place = found
        return Look(
            phase=Phase.RUNNING,
            sale=sale,
            units=units,
            left=max(units - taken, 0),
            arrivals=arrivals,
            place=place or None,
            bought=bool(bought),
        )
    copy = _copies.get(sku) if found is None else None
    seen = copy or _read(sku, load=True)[0]
    if seen.phase is not Phase.RUNNING or user_id is None:
        return seen
    return replace(seen, bought=purchases(sale=seen.sale, buyer=user_id).exists())


def forget() -> None:
    """Have this process read its snapshots again."""
    _copies.forget()


def _read(sku: str, *, load: bool) -> tuple[Look, float]:
    """Read a guest's snapshot from the database, and the seconds that it may be shown.

    `load` puts a running sale into Redis, which then answers the next poll. Raises FlashSaleNotFound.
    """
    now = timezone.now()
    sale = sale_of(sku, now)
    if sale is not None and sale.ends_at > now:
        if load:
            gate.load(sale, replace=False)
        left = min(sale.units - sale.sold, stock.units_of(product_id=sale.product_id))
        found = Look(phase=Phase.RUNNING, sale=sale.pk, units=sale.sold + left, left=left)
        return found, min((sale.ends_at - now).total_seconds(), SNAPSHOT_SECONDS)
    coming = FlashSale.objects.filter(product__sku=sku, starts_at__gt=now)
    following = coming.order_by("starts_at").first()
    if following is not None:
        units = min(following.units, stock.units_of(product_id=following.product_id))
        found = Look(
            phase=Phase.UPCOMING, sale=following.pk, units=units, left=units, starts_at=following.starts_at
        )
        return found, min((following.starts_at - now).total_seconds(), SNAPSHOT_SECONDS)
    if sale is None:
        raise FlashSaleNotFound(sku)
    return Look(phase=Phase.ENDED, sale=sale.pk, units=sale.units, left=0), SNAPSHOT_SECONDS


_copies: CachedMap[Look] = CachedMap("", read=lambda sku: Entry(*_read(sku, load=False)), entries_max=100)
