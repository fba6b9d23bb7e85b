"""Flash sales: few units, many buyers, one unit each, first come, first served. The only writer of their tables.

The database is the judge: unique (sale, buyer) over purchases that stand, and `sold` that only a conditional
UPDATE below `units` counts up, in the one transaction that also takes the unit off the shelf and writes the order.
Closing an unpaid order takes all of that back in its own transaction (trigger of migration 0004, `shop.stock`),
once; then its buyer may buy again while the sale runs.

Redis stands in front, so that those who come too late, or again, cost one script and none of the sale's SQL
(`scripts/flash_admit.lua`). It admits no more buyers than there are units and numbers them as they arrive. An
admission that becomes no order goes back: at once where the refusal is known here, else when its lease is over.
What Redis has lost is read from the database again; where it is wrong, the database refuses, and `reconcile`
corrects it within a minute. With Redis away, the database alone sells, and a process reads for all who wait once
a second, and after what it sold itself.

Lock order: the sale's row, then the product's; closing an order locks the order before them.
"""

import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from importlib import resources
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from idempotency import fastpath
from shop import orders, stock
from shop.errors import AlreadyBought, FlashSaleNotFound, FlashSaleNotRunning, OutOfStock, SoldOut
from shop.kept import Kept
from shop.models import FlashSale, FlashSalePurchase, Order

log = logging.getLogger(__name__)

# of an admission without an order; longer than a purchase takes, and what a killed process costs the next buyer
LEASE_SECONDS = 10.0
# numbers that Redis keeps for those who came too late, to show them; about 1 MB a sale
PLACES_MAX = 10_000
# of what a process shows of a sale while Redis is away
KEPT_SECONDS = 1.0
ONCE_A_BUYER = "flash_sale_once_a_buyer"


class _Script(fastpath.Script):
    """A Lua script of `shop/scripts`; its keys are those of one sku, which one hash tag keeps in one slot."""

    def __init__(self, name: str) -> None:
        self.text = resources.files("shop").joinpath(f"scripts/{name}.lua").read_text()
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_admit = _Script("flash_admit")
_load = _Script("flash_load")
_settle = _Script("flash_settle")
_give_back = _Script("flash_give_back")
_return = _Script("flash_return")
_look = _Script("flash_look")
_announce = _Script("flash_announce")


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
    whose = "" if user_id is None else user_id
    told = fastpath.attempt(lambda redis: _look(redis, _keys(sku), [whose]))
    if told:
        sale, units, taken, arrivals, bought, place = map(int, told)
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
        found = _kept.get(sku, lambda: _look_into_database(sku, take_over=False))
    else:
        found, _ = _look_into_database(sku, take_over=True)
    if found.phase is not Phase.RUNNING or user_id is None:
        return found
    return replace(found, bought=_standing(sale=found.sale, buyer=user_id).exists())


def forget() -> None:
    """What this process shows of sales while Redis is away shall be read anew."""
    _kept.forget()


def announce(*, product_id: int, units: int, starts_at: datetime, ends_at: datetime) -> FlashSale:
    """A sale to come, or one that begins at once; a product's sale that began last is the one that sells.

    Args:
        product_id: primary key; to sell it in flash sales alone, it is marked so.
        units: above zero.
        starts_at: aware; one sale of a product at a time (unique `flash_sale_one_start_a_product`).
        ends_at: aware, later.

    Transaction: two statements; joins the caller's if there is one. After the commit Redis is told where this sale
        ends the one that it knows; while it is away, `reconcile` tells it.
    """
    sale = FlashSale.objects.create(product_id=product_id, units=units, starts_at=starts_at, ends_at=ends_at)
    transaction.on_commit(partial(_announced, sale.product.sku, starts_at))
    return sale


def _announced(sku: str, starts_at: datetime) -> None:
    forget()
    fastpath.attempt(lambda redis: _announce(redis, _keys(sku), [_milliseconds(starts_at)]))


def purchase_of(*, sku: str, user_id: int) -> FlashSalePurchase | None:
    """The user's unit in the product's sale that began last, running or over, with its order."""
    sale = _sale_of(sku, timezone.now())
    return _standing(sale=sale.pk, buyer=user_id).select_related("order").first() if sale is not None else None


def place_of(*, order_id: UUID) -> int | None:
    """The number in the order of arrival that the order was bought under; None for any other order."""
    return FlashSalePurchase.objects.filter(order=order_id).values_list("place", flat=True).first()


def buy(*, sku: str, user_id: int) -> Order:
    """One unit for this buyer, as an order that waits for its payment.

    Raises:
        AlreadyBought, SoldOut: nothing was ordered.
        FlashSaleNotFound, FlashSaleNotRunning: nothing was ordered.

    Transaction: needs the caller's, which must roll back after a refusal and in which nothing was read before, so
        that Redis is asked with none open on the server.
    """
    admission = admit(sku=sku, user_id=user_id)
    try:
        sale, order = _purchase(sku=sku, user_id=user_id, admission=admission)
    except AlreadyBought:
        if admission is not None:
            _tell(_settle, sku, admission.sale, user_id)
        raise
    except SoldOut:
        if admission is not None:  # Redis knew of a unit that is not there: it shall read the database again
            _hand_back(sku, user_id, admission)
            fastpath.attempt(lambda redis: redis.delete(_keys(sku)[0]))
        raise
    except BaseException:
        if admission is not None:
            _hand_back(sku, user_id, admission)
        raise
    # a rollback that comes later leaves the admission to its lease
    transaction.on_commit(partial(_tell, _settle, sku, sale.pk, user_id))
    transaction.on_commit(forget)
    return order


def admit(*, sku: str, user_id: int) -> Admission | None:
    """Ask Redis for leave to buy; without SQL while it knows the sale.

    Returns:
        None if it cannot tell: the database alone decides.

    Raises:
        AlreadyBought, SoldOut: as Redis knows it.
        FlashSaleNotFound, FlashSaleNotRunning: as the database knows it.
    """
    answer = _ask(sku, user_id)
    if answer is not None and answer[0] == b"unknown":
        _take_over(_running(sku), anew=False)
        answer = _ask(sku, user_id)
    if answer is None or answer[0] == b"unknown":  # away, or its clock is not ours
        return None
    word, sale, *place = answer
    if word == b"bought":
        raise AlreadyBought(sku)
    if word == b"sold_out":
        raise SoldOut(sku)
    return Admission(sale=int(sale), place=int(place[0]), fresh=word == b"admitted")


def returned(*, order_id: UUID) -> None:
    """Tell Redis that this order's unit is on sale again, if it was one of a flash sale and is closed.

    Only spares the minute until `reconcile`: the database has taken the unit back already. After the commit.
    """
    purchase = (
        FlashSalePurchase.objects.filter(order=order_id, returned_at__isnull=False)
        .values_list("sale__product__sku", "sale", "buyer")
        .first()
    )
    if purchase is not None:
        sku, *whose = purchase
        forget()
        # waited for: the buyer's next call may come by another connection
        fastpath.attempt(lambda redis: _return(redis, _keys(sku), whose))


def running(*, now: datetime, limit: int) -> list[FlashSale]:
    """The sales that run, those that end first in front.

    Args:
        now: aware.
        limit: most sales to return.
    """
    return list(
        FlashSale.objects.filter(starts_at__lte=now, ends_at__gt=now)
        .select_related("product")
        .order_by("ends_at", "pk")[:limit]
    )


def reconcile(*, sale: FlashSale) -> int | None:
    """Make Redis agree with the database about who has bought.

    A purchase that commits just now may be missed. Then one buyer too many is admitted, and the database refuses.

    Args:
        sale: with its product.

    Returns:
        How many buyers it had too many or too few; None if Redis is away, or a later sale is on.
    """
    current = _sale_of(sale.product.sku, timezone.now())
    if current is None or current.pk != sale.pk:
        return None
    return _take_over(current, anew=True)


def _purchase(*, sku: str, user_id: int, admission: Admission | None) -> tuple[FlashSale, Order]:
    """The judge. The rows that all buyers share are updated last, so that they are locked for three statements."""
    sale = _running(sku, buyer=user_id)
    if sale.bought:  # type: ignore[attr-defined]
        raise AlreadyBought(sku)
    if sale.sold >= sale.units:
        raise SoldOut(sku)
    order = orders.write_order(user_id=user_id, quantities={sale.product: 1})
    try:
        FlashSalePurchase.objects.create(
            sale=sale,
            buyer_id=user_id,
            order=order,
            place=admission.place if admission is not None and admission.sale == sale.pk else None,
        )
    except IntegrityError as error:  # another call of the same buyer has just committed
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) == ONCE_A_BUYER:
            raise AlreadyBought(sku) from None
        raise
    left = FlashSale.objects.filter(pk=sale.pk, sold__lt=F("units"), ends_at__gt=timezone.now())
    if not left.update(sold=F("sold") + 1, version=F("version") + 1):
        raise SoldOut(sku)
    try:
        stock.reserve(quantities={sale.product_id: 1}, buyer=user_id, products=[sale.product])
    except OutOfStock:  # the shelf has fewer units than the sale was to sell
        raise SoldOut(sku) from None
    return sale, order


def _sale_of(sku: str, now: datetime, *, buyer: int | None = None) -> FlashSale | None:
    """The product's sale that began last, with `bought`; whether it is over, its reader sees."""
    standing = _standing(sale=OuterRef("pk"), buyer=buyer)
    return (
        FlashSale.objects.filter(product__sku=sku, starts_at__lte=now)
        .select_related("product")
        .annotate(bought=Exists(standing))
        .order_by("-starts_at")
        .first()
    )


def _standing(*, sale: Any, buyer: int | None) -> QuerySet[FlashSalePurchase]:
    """The buyer's unit of the sale, unless its order is closed."""
    return FlashSalePurchase.objects.filter(sale=sale, buyer=buyer, returned_at__isnull=True)


def _running(sku: str, *, buyer: int | None = None) -> FlashSale:
    now = timezone.now()
    sale = _sale_of(sku, now, buyer=buyer)
    if sale is not None and sale.ends_at > now:
        return sale
    if sale is None and not FlashSale.objects.filter(product__sku=sku).exists():
        raise FlashSaleNotFound(sku)
    raise FlashSaleNotRunning(sku)


def _look_into_database(sku: str, *, take_over: bool) -> tuple[Look, float]:
    """As a guest sees it, and for how many seconds that may be shown.

    Args:
        sku: the product.
        take_over: have Redis read a sale that runs, so that the next one who asks is answered by it.

    Raises:
        FlashSaleNotFound: it has none.
    """
    now = timezone.now()
    sale = _sale_of(sku, now)
    if sale is not None and sale.ends_at > now:
        if take_over:
            _take_over(sale, anew=False)
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


def _take_over(sale: FlashSale, *, anew: bool) -> int | None:
    """Have Redis read the database: `anew`, or only if it does not know this sale."""
    bought = dict(
        FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True).values_list("buyer", "place")
    )
    later = FlashSale.objects.filter(product=sale.product_id, starts_at__gt=sale.starts_at)
    next_start = later.order_by("starts_at").values_list("starts_at", flat=True).first()
    on_sale = min(max(sale.units - len(bought), 0), stock.units_of(product_id=sale.product_id))
    # after a loss, numbers go on above those that may still be on their way
    highest = max((place for place in bought.values() if place), default=0)
    arguments = [
        sale.pk,
        len(bought) + on_sale,
        _milliseconds(sale.starts_at),
        _milliseconds(min(sale.ends_at, next_start or sale.ends_at)),
        highest + sale.units if highest and not anew else highest,
        int(anew),
        *bought,
    ]
    found = fastpath.attempt(lambda redis: int(_load(redis, _keys(sale.product.sku), arguments)))
    return None if found is None else max(found, 0)


def _ask(sku: str, user_id: int) -> Any:
    lease = round(LEASE_SECONDS * 1000)
    return fastpath.attempt(lambda redis: _admit(redis, _keys(sku), [user_id, lease, PLACES_MAX]))


def _hand_back(sku: str, user_id: int, admission: Admission) -> None:
    if admission.fresh:
        _tell(_give_back, sku, admission.sale, user_id, admission.place)


def _tell(script: _Script, sku: str, *arguments: int) -> None:
    """Without waiting: what gets lost, the lease or `reconcile` makes up for."""
    fastpath.attempt(lambda redis: script.tell(redis, _keys(sku), list(arguments)))


def _keys(sku: str) -> list[str]:
    return [f"payonce:flash:{{{sku}}}{part}" for part in ("", ":admitted", ":buyers", ":places")]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


_kept: Kept[Look] = Kept()
