"""Announce a sale, buy in it, return what was not paid; the database decides."""

from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from idempotency.postgres.statements import broken_constraint
from shop import stock
from shop.errors import AlreadyBought, OutOfStock, SoldOut
from shop.models import FlashSale, FlashSalePurchase, Order
from shop.orders import placing as orders
from shop.sales import gate
from shop.sales.gate import Admission
from shop.sales.looking import forget
from shop.sales.sales import running_sale, sale_of

ONCE_A_BUYER = "flash_sale_once_a_buyer"


def announce(
    *,
    product_id: int,
    units: int,
    starts_at: datetime,
    ends_at: datetime,
    former_price_minor: int | None = None,
) -> FlashSale:
    """Create a sale; of a product's sales the one that began last sells.

    Args:
        product_id: of a product marked as sold in flash sales alone.
        units: above zero.
        starts_at: aware; unique for the product (`flash_sale_one_start_a_product`).
        ends_at: aware, later.
        former_price_minor: to be shown beside the price; None shows none.

    Transaction: two statements; joins the caller's if there is one. After the commit Redis learns that this sale
        ends the current one; while it is away, from `reconcile`.
    """
    sale = FlashSale.objects.create(
        product_id=product_id,
        units=units,
        starts_at=starts_at,
        ends_at=ends_at,
        former_price_minor=former_price_minor,
    )
    transaction.on_commit(partial(_announced, sale.product.sku, starts_at))
    return sale


def buy(*, sku: str, user_id: int) -> Order:
    """Place an order of one unit for this buyer.

    Raises:
        AlreadyBought, SoldOut, FlashSaleNotFound, FlashSaleNotRunning: nothing was ordered.

    Transaction: needs the caller's, which must roll back after a refusal, and which has read nothing yet, so that
        none is open on the server during the call to Redis.
    """
    admission = gate.admit(sku=sku, user_id=user_id)
    try:
        sale, order = _purchase(sku=sku, user_id=user_id, admission=admission)
    except AlreadyBought:
        if admission is not None:
            gate.bought(sku=sku, sale=admission.sale, user_id=user_id)
        raise
    except BaseException as refusal:
        if admission is not None:
            gate.hand_back(sku=sku, user_id=user_id, admission=admission)
            if isinstance(refusal, SoldOut):
                gate.distrust(sku=sku)
        raise
    # after a later rollback the admission's lease ends it
    transaction.on_commit(partial(gate.bought, sku=sku, sale=sale.pk, user_id=user_id))
    transaction.on_commit(forget)
    return order


def returned(*, order_id: UUID) -> None:
    """Put a closed order's flash sale unit on sale again in Redis; call it after the commit.

    Only spares the minute until `reconcile`: the database has taken the unit back already.
    """
    purchase = (
        FlashSalePurchase.objects.filter(order=order_id, returned_at__isnull=False)
        .values_list("sale__product__sku", "sale", "buyer")
        .first()
    )
    if purchase is not None:
        sku, sale, buyer = purchase
        forget()
        gate.returned(sku=sku, sale=sale, user_id=buyer)


def reconcile(*, sale: FlashSale) -> int | None:
    """Make Redis agree with the database about who has bought.

    A buyer who returns a unit and buys another meanwhile may be missed: the database then refuses one too many.

    Returns:
        The number of buyers that Redis had too many or too few; None if it is away, or a later sale is on.
    """
    current = sale_of(sale.product.sku, timezone.now())
    if current is None or current.pk != sale.pk:
        return None
    return gate.load(current, replace=True)


def _announced(sku: str, starts_at: datetime) -> None:
    forget()
    gate.announced(sku=sku, starts_at=starts_at)


def _purchase(*, sku: str, user_id: int, admission: Admission | None) -> tuple[FlashSale, Order]:
    """Decide in the database. Rows that all buyers share are locked last, briefly."""
    sale = running_sale(sku, buyer=user_id)
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
        if broken_constraint(error) == ONCE_A_BUYER:
            raise AlreadyBought(sku) from None
        raise
    left = FlashSale.objects.filter(pk=sale.pk, sold__lt=F("units"), ends_at__gt=timezone.now())
    if not left.update(sold=F("sold") + 1, version=F("version") + 1):
        raise SoldOut(sku)
    try:
        stock.reserve(quantities={sale.product: 1}, buyer=user_id)
    except OutOfStock:  # the shelf has fewer units than the sale was to sell
        raise SoldOut(sku) from None
    return sale, order
