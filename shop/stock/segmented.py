"""A product's units in several rows: concurrent buyers lock different ones.

A buyer's number names a home segment; the others follow in a circle. The first that has enough and is not locked
serves, without waiting. If all are busy, the buyer waits for the home. Only if no single segment has enough, all
are locked by number and the units are taken from several. So a buyer that waits for a segment holds none of the
same product with a higher number.

That needs the savepoint around each attempt: PostgreSQL locks a row, then checks that its newest version still has
enough, and keeps the lock if not. (Found by a test: deadlocks between buyers of the last units.)

The product's row is not written, hence not locked: its `version` counts edits and moves, not orders.
"""

from django.db import connection
from django.db.models import F, Func, IntegerField, QuerySet, Value

from shop.models import Product, StockSegment, StockStrategy


class Segmented:
    """The strategy of several rows; see the module."""

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        count = product.stock_segments
        home = buyer % count  # users are numbered one by one: this spreads them evenly
        distance = Func(F("number") + (count - home), Value(count), function="mod", output_field=IntegerField())
        enough = _of(product).filter(units__gte=quantity)
        return (
            _attempt(_free(enough.order_by(distance)), -quantity)
            or _attempt(enough.filter(number=home), -quantity)
            or _take_from_several(product, quantity, home)
        )

    def put(self, *, product: Product, quantity: int) -> bool:
        """Put units where the fewest are; if all are busy, wait for the first."""
        return _add(_free(_of(product).order_by("units")), quantity) or _add(
            _of(product).filter(number=0), quantity
        )

    def adjust(self, *, product: Product, difference: int) -> bool:
        """Split the new total over all segments. Locks the product's row first, as `arrange`."""
        mine = Product.objects.filter(pk=product.pk, stock_strategy=StockStrategy.SEGMENTED)
        if not mine.update(version=F("version") + 1):
            return False
        rows = _locked(product)
        total = sum(row.units for row in rows) + difference
        if total < 0:
            return False
        for row, units in zip(rows, divided(total, len(rows)), strict=True):
            row.units = units
        StockSegment.objects.bulk_update(rows, ["units"])
        return True


def divided(units: int, count: int) -> list[int]:
    """Split `units` into `count` parts that differ by one at most."""
    part, rest = divmod(units, count)
    return [part + (number < rest) for number in range(count)]


def _take_from_several(product: Product, quantity: int, home: int) -> bool:
    left = sum(_of(product).values_list("units", flat=True))
    if left < quantity:  # units held without commit count as there, so this needs no lock
        return False
    rows = _locked(product)
    if sum(row.units for row in rows) < quantity:
        return False
    for row in (*rows[home:], *rows[:home]):
        taken = min(row.units, quantity)
        if taken:
            _add(_of(product).filter(number=row.number), -taken)
            quantity -= taken
        if not quantity:
            break
    return True


def _of(product: Product) -> QuerySet[StockSegment, StockSegment]:
    return StockSegment.objects.filter(product=product.pk)


def _locked(product: Product) -> list[StockSegment]:
    return list(_of(product).order_by("number").select_for_update(no_key=True))


def _free(rows: QuerySet[StockSegment, StockSegment]) -> QuerySet[StockSegment, StockSegment]:
    first = rows.select_for_update(skip_locked=True, no_key=True).values("pk")[:1]
    return StockSegment.objects.filter(pk=first)


def _add(rows: QuerySet[StockSegment, StockSegment], units: int) -> bool:
    return bool(rows.update(units=F("units") + units))


def _attempt(rows: QuerySet[StockSegment, StockSegment], units: int) -> bool:
    """`_add`; in vain, release what was locked on the way."""
    # never released: the commit does it, without a round trip
    savepoint = connection.savepoint()
    assert savepoint is not None  # noqa: S101  within a transaction PostgreSQL has one
    if _add(rows, units):
        return True
    connection.savepoint_rollback(savepoint)
    return False
