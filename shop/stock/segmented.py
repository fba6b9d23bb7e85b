"""A product's units in several rows: buyers at the same instant lock different ones.

A buyer's number names one segment, and the others follow in a circle. The first of them that has enough and that
nobody has locked is taken; this waits for nobody. If all are busy, the buyer waits for his own. Only if no single
segment has enough, all are locked, in the order of their numbers, and the units are taken from several. So
whoever waits for a segment holds none of the same product with a higher number.

That needs the savepoint around each attempt: PostgreSQL locks a row first, then looks whether its newest version
still has enough, and does not unlock it if not. (Found by a test: deadlocks between buyers of the last units.)

The product's row is not written, hence not locked: its `version` counts edits and moves, not orders.
"""

from collections.abc import Sequence

from django.db import connection
from django.db.models import F, Func, IntegerField, QuerySet, Value

from shop.models import Product, StockSegment, StockStrategy


class Segmented:
    """See the module."""

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        home = buyer % product.stock_segments  # users are numbered one by one: this spreads them evenly
        distance = _modulo(F("number") + (product.stock_segments - home), product.stock_segments)
        enough = _of(product).filter(units__gte=quantity)
        return (
            _attempt(_free(enough.order_by(distance)), -quantity)
            or _attempt(enough.filter(number=home), -quantity)
            or _take_from_several(product, quantity, home)
        )

    def put(self, *, product: Product, quantity: int) -> bool:
        """Where the fewest are; if all are busy, wait for the first."""
        return _add(_free(_of(product).order_by("units")), quantity) or _add(
            _of(product).filter(number=0), quantity
        )

    def adjust(self, *, product: Product, difference: int) -> bool:
        """Over all segments, which are evened out by the way. Locks the product's row first, as `arrange` does."""
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
    """`units` in `count` parts that differ by one at most."""
    part, rest = divmod(units, count)
    return [part + (number < rest) for number in range(count)]


def _take_from_several(product: Product, quantity: int, home: int) -> bool:
    left = sum(_of(product).values_list("units", flat=True))
    if left < quantity:  # what others hold without commit counts as there: no lock is needed to be sure
        return False
    rows = _locked(product)
    if sum(row.units for row in rows) < quantity:
        return False
    for row in _in_circle(rows, home):
        taken = min(row.units, quantity)
        if taken:
            _add(_of(product).filter(number=row.number), -taken)
            quantity -= taken
        if not quantity:
            break
    return True


def _in_circle(rows: Sequence[StockSegment], home: int) -> list[StockSegment]:
    return [*rows[home:], *rows[:home]]


def _of(product: Product) -> QuerySet[StockSegment, StockSegment]:
    return StockSegment.objects.filter(product=product.pk)


def _locked(product: Product) -> list[StockSegment]:
    """All of the product's segments, in the order in which everybody locks them."""
    return list(_of(product).order_by("number").select_for_update(no_key=True))


def _free(rows: QuerySet[StockSegment, StockSegment]) -> QuerySet[StockSegment, StockSegment]:
    """The first of `rows` that nobody else has locked, locked."""
    first = rows.select_for_update(skip_locked=True, no_key=True).values("pk")[:1]
    return StockSegment.objects.filter(pk=first)


def _add(rows: QuerySet[StockSegment, StockSegment], units: int) -> bool:
    return bool(rows.update(units=F("units") + units))


def _attempt(rows: QuerySet[StockSegment, StockSegment], units: int) -> bool:
    """`_add`; if in vain, what was locked on the way is free again."""
    # never released, which were a round trip for nothing: the commit does it
    savepoint = connection.savepoint()
    assert savepoint is not None  # noqa: S101  within a transaction PostgreSQL has one
    if _add(rows, units):
        return True
    connection.savepoint_rollback(savepoint)
    return False


def _modulo(value: object, divisor: int) -> Func:
    return Func(value, Value(divisor), function="mod", output_field=IntegerField())
