"""Placing and reading orders: the only writer but of the status (`shop.orders.lifecycle`).

A change is a conditional UPDATE on the version that was decided on, or is made under the order's lock. Lock order:
as of `shop.orders.lifecycle`.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import get_language

from payments.models import Payment
from shop import stock
from shop.errors import (
    FlashSaleOnly,
    MixedCurrency,
    OrderClosed,
    OrderNotFound,
    OrderPaid,
    PaymentBegun,
    ProductNotFound,
    VersionConflict,
)
from shop.models import Order, OrderItem, OrderStatus, Product
from shop.orders import changes

MAX_ITEMS = 20  # products of one order


def create_order(*, user_id: int, quantities: Mapping[str, int], note: str = "") -> Order:
    """Take the units off the shelf and write the order.

    Args:
        quantities: sku -> units, each above zero.
        note: the shopper's words to the shop, at most 500 characters.

    Raises:
        ProductNotFound, FlashSaleOnly, MixedCurrency, OutOfStock: nothing was ordered; the caller's transaction
            must roll back.

    Transaction: needs the caller's, so that a ledger row commits with it. No network.
    """
    products = {product.sku: product for product in Product.objects.filter(sku__in=quantities)}
    for sku in quantities:
        if sku not in products:
            raise ProductNotFound(sku)
        if products[sku].flash_only:
            raise FlashSaleOnly(sku)
    if len({product.currency for product in products.values()}) != 1:
        raise MixedCurrency
    units = {products[sku]: quantity for sku, quantity in quantities.items()}
    stock.reserve(quantities=units, buyer=user_id)
    return write_order(user_id=user_id, quantities=units, note=note)


def write_order(*, user_id: int, quantities: Mapping[Product, int], note: str = "") -> Order:
    """Write an order at current prices; its units leave the shelf with the commit.

    Args:
        quantities: product -> units, each above zero; all priced in one currency.
        note: at most 500 characters.

    Transaction: needs the caller's, the one that takes the units. No network.
    """
    now = timezone.now()
    order = Order.objects.create(
        user_id=user_id,
        total_minor=sum(product.price_minor * quantity for product, quantity in quantities.items()),
        currency=next(iter(quantities)).currency,
        note=note,
        language=get_language() or "",
        created_at=now,
        expires_at=now + timedelta(seconds=settings.ORDER_TTL_SECONDS),
    )
    order.lines = OrderItem.objects.bulk_create(
        OrderItem(
            order=order,
            product=product,
            sku=product.sku,
            name=product.local_name,
            quantity=quantity,
            price_minor=product.price_minor,
        )
        for product, quantity in quantities.items()
    )
    return order


def list_orders(*, user_id: int) -> QuerySet[Order, Order]:
    """Select the user's orders with their items, newest first; the caller must bound it."""
    return Order.objects.filter(user_id=user_id).prefetch_related("items").order_by("-id")


def get_order(*, order_id: UUID, user_id: int) -> Order:
    """Read the user's order with its items. Raises OrderNotFound, for another's too."""
    order = list_orders(user_id=user_id).filter(pk=order_id).first()
    if order is None:
        raise OrderNotFound
    return order


def latest_id(*, user_id: int) -> UUID | None:
    return Order.objects.filter(user_id=user_id).order_by("-id").values_list("id", flat=True).first()


def payment_ids(*, order_ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Map orders to their payments, where they have one; orders themselves hold no link."""
    return dict(Payment.objects.filter(order_id__in=list(order_ids)).values_list("order_id", "id"))


def lock_payable(*, order_id: UUID, user_id: int) -> Order:
    """Lock the user's order for opening a payment attempt.

    Raises:
        OrderNotFound: there is none, or it is another user's.
        OrderPaid: it is paid, or was and is refunded.
        OrderClosed: it is closed, closing, or past `expires_at`.

    Transaction: needs the caller's; the row lock lasts until it ends.
    """
    order = Order.objects.select_for_update(no_key=True).filter(pk=order_id, user_id=user_id).first()
    if order is None:
        raise OrderNotFound
    if order.status in {OrderStatus.PAID, OrderStatus.REFUNDED}:
        raise OrderPaid
    if order.status == OrderStatus.CLOSED or order.closing_at or order.expires_at <= timezone.now():
        raise OrderClosed
    return order


def record_payment_opened(*, order: Order) -> None:
    """Increment the version: the order shows its payment. Transaction: that of `lock_payable`."""
    Order.objects.filter(pk=order.pk, version=order.version).update(version=F("version") + 1)


def take_off(*, order: Order, percent: int) -> int:
    """Lower the total by 1 to 90 percent, rounded down; return by how much, in minor units.

    Raises:
        PaymentBegun: an attempt has carried the total to a provider.

    Transaction: that of `lock_payable`.
    """
    if payment_ids(order_ids=[order.pk]):
        raise PaymentBegun
    off = order.total_minor * percent // 100
    if not off:
        return 0
    Order.objects.filter(pk=order.pk).update(total_minor=F("total_minor") - off, version=F("version") + 1)
    changes.announce(order.pk)
    return off


def update_note(*, order_id: UUID, user_id: int, versions: frozenset[int] | None, note: str) -> Order:
    """Write the note, unless the order has changed since the caller read it.

    Args:
        versions: the versions that the caller accepts, None for any that exists (`If-Match: *`).
        note: at most 500 characters.

    Raises:
        OrderNotFound: there is none, or it is another user's.
        VersionConflict: the order is at another version by now.

    Transaction: one conditional statement and a read.
    """
    mine = Order.objects.filter(pk=order_id, user_id=user_id)
    current = mine if versions is None else mine.filter(version__in=versions)
    changed = current.update(note=note, version=F("version") + 1)
    order = get_order(order_id=order_id, user_id=user_id)
    if not changed:
        raise VersionConflict(order.version)
    return order
