"""Three strategies for units in one row, each safe against the other two.

A row whose units have moved into segments holds none (a CHECK), so none can be taken from it by mistake.
"""

from django.db.models import F, QuerySet

from shop.models import Product, StockStrategy

TRIES = 4  # by version; each is lost to another buyer's commit


class Conditional:
    """Take if the current row has enough; a second buyer waits for the first one's commit."""

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        rows = Product.objects.filter(pk=product.pk, stock__gte=quantity)
        return _write(rows, stock=F("stock") - quantity)

    def put(self, *, product: Product, quantity: int) -> bool:
        return self.adjust(product=product, difference=quantity)

    def adjust(self, *, product: Product, difference: int) -> bool:
        rows = Product.objects.filter(pk=product.pk, stock__gte=-difference)
        return _write(
            rows.exclude(stock_strategy=StockStrategy.SEGMENTED),
            stock=F("stock") + difference,
        )


class Version(Conditional):
    """Take if the row is unchanged since it was read; after `TRIES` losses lock it.

    A loser that waited for the row has it locked, so it loses once; one that reads too late may lose again.
    """

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        row: Product | None = product
        for _ in range(TRIES):
            if row is None or row.stock < quantity:
                return False
            if _write(Product.objects.filter(pk=row.pk, version=row.version), stock=row.stock - quantity):
                return True
            row = Product.objects.filter(pk=product.pk).first()
        return RowLock().take(product=product, quantity=quantity, buyer=buyer)


class RowLock(Conditional):
    """Lock the row, read, take: buyers are served in turn and never retry."""

    def take(self, *, product: Product, quantity: int, buyer: int) -> bool:
        row = Product.objects.select_for_update(no_key=True).filter(pk=product.pk).first()
        if row is None or row.stock < quantity:
            return False
        return _write(Product.objects.filter(pk=row.pk), stock=row.stock - quantity)


def _write(rows: QuerySet[Product, Product], *, stock: object) -> bool:
    return bool(rows.update(stock=stock, version=F("version") + 1))
