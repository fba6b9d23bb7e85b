"""Redis in front of a sale: admits buyers in order. It spares SQL and decides nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from idempotency.ledger import redis_prefix
from idempotency.redis import fastpath
from idempotency.redis.connection import connection_of
from idempotency.redis.fastpath import Script
from shop import stock
from shop.errors import AlreadyBought, SoldOut
from shop.models import FlashSale, FlashSalePurchase
from shop.sales.sales import running_sale

# of an admission without an order: longer than a purchase takes; a killed process delays the next buyer by it
LEASE_SECONDS = 10.0
# places that Redis stores for late buyers, to show them; about 1 MB a sale
PLACES_MAX = 10_000

# the keys of each are those of one sku, which one hash tag keeps in one slot
_admit = Script("flash_admit", package="shop.sales")
_buyers = Script("flash_buyers", package="shop.sales")
_load = Script("flash_load", package="shop.sales")
_settle = Script("flash_settle", package="shop.sales")
_give_back = Script("flash_give_back", package="shop.sales")
_return = Script("flash_return", package="shop.sales")
_look = Script("flash_look", package="shop.sales")
_announce = Script("flash_announce", package="shop.sales")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Permission to buy one unit.

    Attributes:
        sale: primary key.
        place: number in the order of arrival, from 1; it grows with every arrival, admitted or not. A late buyer
            keeps it, and is admitted under it later if a unit has come back.
        fresh: False for a buyer who was admitted before; that call gives the place back, or its lease does.
    """

    sale: int
    place: int
    fresh: bool


def admit(*, sku: str, user_id: int) -> Admission | None:
    """Ask Redis for permission to buy; without SQL while it knows the sale.

    Returns:
        None if Redis cannot say: the database alone decides.

    Raises:
        AlreadyBought, SoldOut: by Redis.
        FlashSaleNotFound, FlashSaleNotRunning: by the database.
    """
    answer = _ask(sku, user_id)
    if answer is not None and answer[0] == b"unknown":
        load(running_sale(sku), replace=False)
        answer = _ask(sku, user_id)
    if answer is None or answer[0] == b"unknown":  # away, or its clock is not ours
        return None
    word, sale, *place = answer
    if word == b"bought":
        raise AlreadyBought(sku)
    if word == b"sold_out":
        raise SoldOut(sku)
    return Admission(sale=int(sale), place=int(place[0]), fresh=word == b"admitted")


def load(sale: FlashSale, *, replace: bool) -> int | None:
    """Load a running sale from the database into Redis; `replace` one that it knows.

    Returns:
        The number of buyers that Redis had too many or too few; None if it is away.
    """
    known = fastpath.attempt(lambda redis: _buyers(redis, _keys(sale.product.sku), []))
    if known is None:
        return None
    buyers = dict(
        FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True).values_list("buyer", "place")
    )
    # a buyer of whom Redis hears from now on is in neither, and stays
    gone = set(known) - {str(buyer).encode() for buyer in buyers}
    later = FlashSale.objects.filter(product=sale.product_id, starts_at__gt=sale.starts_at)
    next_start = later.order_by("starts_at").values_list("starts_at", flat=True).first()
    on_sale = min(max(sale.units - len(buyers), 0), stock.units_of(product_id=sale.product_id))
    # after a loss, numbers go on above those that may still be on their way
    highest = max((place for place in buyers.values() if place), default=0)
    arguments = [
        sale.pk,
        len(buyers) + on_sale,
        _milliseconds(sale.starts_at),
        _milliseconds(min(sale.ends_at, next_start or sale.ends_at)),
        highest + sale.units if highest and not replace else highest,
        int(replace),
        len(buyers),
        *buyers,
        *gone,
    ]
    found = fastpath.attempt(lambda redis: int(_load(redis, _keys(sale.product.sku), arguments)))
    return None if found is None else max(found, 0)


def snapshot(*, sku: str, user_id: int | None) -> tuple[int, ...] | None:
    """Read the running sale from Redis: sale, units, taken, arrivals, bought (0 or 1), place.

    Returns:
        Six numbers, the last two the user's, 0 for no place; empty if no sale runs; None if it is away.
    """
    user = "" if user_id is None else user_id
    found = fastpath.attempt(lambda redis: _look(redis, _keys(sku), [user]))
    return None if found is None else tuple(map(int, found))


def bought(*, sku: str, sale: int, user_id: int) -> None:
    """Record that the admission has become an order."""
    _send_nowait(_settle, sku, sale, user_id)


def hand_back(*, sku: str, user_id: int, admission: Admission) -> None:
    """Give back an admission without order, unless another call of the buyer was given it."""
    if admission.fresh:
        _send_nowait(_give_back, sku, admission.sale, user_id, admission.place)


def returned(*, sku: str, sale: int, user_id: int) -> None:
    """Put the unit on sale again; waits, because the next call may use another connection."""
    fastpath.attempt(lambda redis: _return(redis, _keys(sku), [sale, user_id]))


def distrust(*, sku: str) -> None:
    """Have Redis read the database again, after it knew of a unit that is not there."""
    fastpath.attempt(lambda redis: redis.delete(_keys(sku)[0]))


def announced(*, sku: str, starts_at: datetime) -> None:
    """End the sale that Redis knows at the start of the product's next."""
    fastpath.attempt(lambda redis: _announce(redis, _keys(sku), [_milliseconds(starts_at)]))


def _ask(sku: str, user_id: int) -> Any:
    lease = round(LEASE_SECONDS * 1000)
    return fastpath.attempt(lambda redis: _admit(redis, _keys(sku), [user_id, lease, PLACES_MAX]))


def _send_nowait(script: Script, sku: str, *arguments: int) -> None:
    """Run without waiting: the lease or `reconcile` makes up for a lost command."""
    fastpath.attempt(lambda redis: script.send_nowait(connection_of(redis), _keys(sku), list(arguments)))


def _keys(sku: str) -> list[str]:
    key = f"{redis_prefix()}:flash:{{{sku}}}"
    return [f"{key}{part}" for part in ("", ":admitted", ":buyers", ":places")]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
