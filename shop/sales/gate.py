"""Redis in front of a sale: who may try to buy, in the order of arrival. It spares SQL and decides nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from idempotency.ledger import redis_prefix
from idempotency.redis import fastpath
from idempotency.redis.fastpath import Script
from shop import stock
from shop.errors import AlreadyBought, SoldOut
from shop.models import FlashSale, FlashSalePurchase
from shop.sales.sales import running_sale

# of an admission without an order; longer than a purchase takes, and what a killed process costs the next buyer
LEASE_SECONDS = 10.0
# numbers that Redis keeps for those who came too late, to show them; about 1 MB a sale
PLACES_MAX = 10_000


# the keys of each are those of one sku, which one hash tag keeps in one slot
_admit = Script("flash_admit", package="shop.sales")
_load = Script("flash_load", package="shop.sales")
_settle = Script("flash_settle", package="shop.sales")
_give_back = Script("flash_give_back", package="shop.sales")
_return = Script("flash_return", package="shop.sales")
_look = Script("flash_look", package="shop.sales")
_announce = Script("flash_announce", package="shop.sales")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Leave to buy one unit.

    Attributes:
        sale: primary key.
        place: number in the order of arrival, from 1; it grows with every arrival, admitted or not. Who came too
            late keeps his, and is admitted under it when he comes again and a unit has come back.
        fresh: False for a buyer who was admitted before; that call gives the place back, or its lease does.
    """

    sale: int
    place: int
    fresh: bool


def admit(*, sku: str, user_id: int) -> Admission | None:
    """Ask Redis for leave to buy; without SQL while it knows the sale.

    Returns:
        None if it cannot tell: the database alone decides.

    Raises:
        AlreadyBought, SoldOut: as Redis knows it.
        FlashSaleNotFound, FlashSaleNotRunning: as the database knows it.
    """
    answer = _ask(sku, user_id, lease_seconds=LEASE_SECONDS)
    if answer is not None and answer[0] == b"unknown":
        take_over(running_sale(sku), anew=False)
        answer = _ask(sku, user_id, lease_seconds=LEASE_SECONDS)
    if answer is None or answer[0] == b"unknown":  # away, or its clock is not ours
        return None
    word, sale, *place = answer
    if word == b"bought":
        raise AlreadyBought(sku)
    if word == b"sold_out":
        raise SoldOut(sku)
    return Admission(sale=int(sale), place=int(place[0]), fresh=word == b"admitted")


def refuse_late(*, sku: str, user_id: int) -> None:
    """Nothing for who may still have a unit, or where Redis cannot tell: `admit` decides. It admits nobody.

    Raises:
        SoldOut: he comes too late; he has his number in the order of arrival.
    """
    answer = _ask(sku, user_id, lease_seconds=0)
    if answer is not None and answer[0] == b"sold_out":
        raise SoldOut(sku)


def take_over(sale: FlashSale, *, anew: bool) -> int | None:
    """Have Redis read the database: `anew`, or only if it does not know this sale.

    Args:
        sale: one that runs, with its product.
        anew: also where it knows the sale, and what it knows is replaced.

    Returns:
        How many buyers it had too many or too few; None if it is away.
    """
    buyers = dict(
        FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True).values_list("buyer", "place")
    )
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
        highest + sale.units if highest and not anew else highest,
        int(anew),
        *buyers,
    ]
    found = fastpath.attempt(lambda redis: int(_load(redis, _keys(sale.product.sku), arguments)))
    return None if found is None else max(found, 0)


def stand(*, sku: str, user_id: int | None) -> tuple[int, ...] | None:
    """What Redis knows of the sale that runs: sale, units, taken, arrivals; and of the user bought (0, 1), place.

    Returns:
        Six numbers, a place of 0 being none; nothing if it knows no sale that runs; None if it is away.
    """
    whose = "" if user_id is None else user_id
    told = fastpath.attempt(lambda redis: _look(redis, _keys(sku), [whose]))
    return None if told is None else tuple(map(int, told))


def bought(*, sku: str, sale: int, user_id: int) -> None:
    """The admission has become an order."""
    _tell(_settle, sku, sale, user_id)


def hand_back(*, sku: str, user_id: int, admission: Admission) -> None:
    """The admission becomes no order; one that another call of the buyer was given is left to that call."""
    if admission.fresh:
        _tell(_give_back, sku, admission.sale, user_id, admission.place)


def returned(*, sku: str, sale: int, user_id: int) -> None:
    """The buyer's unit is on sale again. Waited for: his next call may come by another connection."""
    fastpath.attempt(lambda redis: _return(redis, _keys(sku), [sale, user_id]))


def distrust(*, sku: str) -> None:
    """Redis knew of a unit that is not there: it shall read the database again."""
    fastpath.attempt(lambda redis: redis.delete(_keys(sku)[0]))


def announced(*, sku: str, starts_at: datetime) -> None:
    """Another sale of the product begins then, and ends the one that Redis knows."""
    fastpath.attempt(lambda redis: _announce(redis, _keys(sku), [_milliseconds(starts_at)]))


def _ask(sku: str, user_id: int, *, lease_seconds: float) -> Any:
    lease = round(lease_seconds * 1000)
    return fastpath.attempt(lambda redis: _admit(redis, _keys(sku), [user_id, lease, PLACES_MAX]))


def _tell(script: Script, sku: str, *arguments: int) -> None:
    """Without waiting: what gets lost, the lease or `reconcile` makes up for."""
    fastpath.attempt(lambda redis: script.tell(redis, _keys(sku), list(arguments)))


def _keys(sku: str) -> list[str]:
    key = f"{redis_prefix()}:flash:{{{sku}}}"
    return [f"{key}{part}" for part in ("", ":admitted", ":buyers", ":places")]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
