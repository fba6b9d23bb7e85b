"""Reads of sales and purchases from the database."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from shop.errors import FlashSaleNotFound, FlashSaleNotRunning
from shop.models import FlashSale, FlashSalePurchase


def sale_of(sku: str, now: datetime, *, buyer: int | None = None) -> FlashSale | None:
    """Read the product's sale that began last, over or not, with `bought`."""
    theirs = purchases(sale=OuterRef("pk"), buyer=buyer)
    return (
        FlashSale.objects.filter(product__sku=sku, starts_at__lte=now)
        .select_related("product")
        .annotate(bought=Exists(theirs))
        .order_by("-starts_at")
        .first()
    )


def purchases(*, sale: Any, buyer: int | None) -> QuerySet[FlashSalePurchase]:
    """Select the buyer's purchase in the sale, unless its order is closed."""
    return FlashSalePurchase.objects.filter(sale=sale, buyer=buyer, returned_at__isnull=True)


def running_sale(sku: str, *, buyer: int | None = None) -> FlashSale:
    """Read the running sale, with `bought`. Raises FlashSaleNotFound, FlashSaleNotRunning."""
    now = timezone.now()
    sale = sale_of(sku, now, buyer=buyer)
    if sale is not None and sale.ends_at > now:
        return sale
    if sale is None and not FlashSale.objects.filter(product__sku=sku).exists():
        raise FlashSaleNotFound(sku)
    raise FlashSaleNotRunning(sku)


def purchase_of(*, sku: str, user_id: int) -> FlashSalePurchase | None:
    """Read the user's purchase, with its order, in the product's sale that began last."""
    sale = sale_of(sku, timezone.now())
    return purchases(sale=sale.pk, buyer=user_id).select_related("order").first() if sale is not None else None


def terms_of(*, sale: int) -> FlashSale:
    return FlashSale.objects.only("ends_at", "former_price_minor").get(pk=sale)


def is_ahead(*, sku: str) -> bool:
    """Return whether a sale of the product runs or is to come."""
    return FlashSale.objects.filter(product__sku=sku, ends_at__gt=timezone.now()).exists()


def place_of(*, order_id: UUID) -> int | None:
    """Return the place in line of a flash sale's order; None for any other order."""
    return FlashSalePurchase.objects.filter(order=order_id).values_list("place", flat=True).first()


def running() -> list[FlashSale]:
    """List running sales, the first to end first."""
    sales = FlashSale.objects.filter(starts_at__lte=(now := timezone.now()), ends_at__gt=now)
    return list(sales.select_related("product").order_by("ends_at", "pk"))
