"""What the shop keeps: products with their stock, likes, orders with their items, flash sales, coupons.

Fields, constraints and pure properties only. Writers are `shop.catalog` (products, likes), `shop.stock` (what a
product's row says of its stock, and its segments), `shop.orders` (orders and items), `shop.lifecycle` (an order's
status), `shop.flashsale` (sales and their purchases) and `shop.coupons`; nobody else writes.
What must never happen is refused here by the database, whatever the code above does.
"""

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Sum, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from idempotency.ids import new_id

SEGMENTS_MAX = 64  # of a product's stock: more than connections that write at once help nobody


class StockStrategy(models.TextChoices):
    """How a product's units are taken; see `shop.stock`."""

    CONDITIONAL = "conditional", _("One row, conditional update")
    VERSION = "version", _("One row, version and retry")
    ROW_LOCK = "row_lock", _("One row, locked")
    SEGMENTED = "segmented", _("Several rows, for a product that many buy at once")


class ProductQuerySet(models.QuerySet["Product"]):
    """Products, and how many units there are of each."""

    def with_units(self) -> Self:
        """`units` annotated: what can be ordered, wherever the strategy keeps it."""
        segments = (
            StockSegment.objects.filter(product=OuterRef("pk"))
            .order_by()
            .values("product")
            .annotate(sum=Sum("units"))
            .values("sum")
        )
        in_segments = When(stock_strategy=StockStrategy.SEGMENTED, then=Coalesce(Subquery(segments), 0))
        return self.annotate(units=Case(in_segments, default=F("stock"), output_field=models.IntegerField()))


class Product(models.Model):
    """One thing for sale. Units in open orders are already taken off its stock.

    `stock` is what can still be ordered, but for a segmented product: then it is zero, and the units stand in the
    segments. Who reads the number reads `ProductQuerySet.with_units`.
    """

    class Picture(models.TextChoices):
        """Symbols of the sprite `static/shop/art.svg`."""

        PARCEL = "parcel", _("Parcel")
        MUG = "mug", _("Mug")
        POSTER = "poster", _("Poster")
        SNEAKER = "sneaker", _("Sneaker")

    sku = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    picture = models.CharField(max_length=16, choices=Picture.choices, default=Picture.PARCEL)
    price_minor = models.BigIntegerField(help_text=_("in the currency's minor unit: 1990 is ¥19.90"))
    currency = models.CharField(max_length=3, default="CNY", help_text=_("ISO 4217"))
    stock = models.IntegerField(default=0)
    # the database's own defaults too, for whoever inserts without naming the columns
    stock_strategy = models.CharField(
        max_length=16,
        choices=StockStrategy.choices,
        default=StockStrategy.CONDITIONAL,
        db_default=StockStrategy.CONDITIONAL.value,
    )
    stock_segments = models.PositiveSmallIntegerField(default=16, db_default=16)
    flash_only = models.BooleanField(default=False, help_text=_("sold in flash sales alone, never by an order"))
    version = models.PositiveBigIntegerField(default=1, editable=False)

    objects = ProductQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(stock__gte=0), name="product_stock_never_below_zero"),
            models.CheckConstraint(
                condition=Q(stock_strategy__in=StockStrategy.values), name="product_stock_strategy_is_known"
            ),
            models.CheckConstraint(
                condition=Q(stock=0) | ~Q(stock_strategy="segmented"), name="product_units_stand_in_one_place"
            ),
            models.CheckConstraint(
                condition=Q(stock_segments__gte=1, stock_segments__lte=SEGMENTS_MAX),
                name="product_stock_segments_are_few",
            ),
            models.CheckConstraint(condition=Q(price_minor__gt=0), name="product_price_is_positive"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="product_currency_is_iso"),
            models.CheckConstraint(condition=Q(version__gte=1), name="product_version_starts_at_one"),
        )

    def __str__(self) -> str:
        return self.name


class StockSegment(models.Model):
    """A part of a segmented product's units: a row of its own, so that buyers lock different ones."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="segments", db_index=False)
    number = models.PositiveSmallIntegerField()
    units = models.IntegerField()

    class Meta:
        ordering = ("product", "number")
        constraints = (
            models.UniqueConstraint(fields=["product", "number"], name="stock_segment_once_per_number"),
            models.CheckConstraint(condition=Q(units__gte=0), name="stock_segment_never_below_zero"),
        )

    def __str__(self) -> str:
        return f"{self.product_id} {self.number}"


class Like(models.Model):
    """A user likes a product; the unique constraint makes liking a constant, however often it arrives."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="likes")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "product"], name="like_once_per_user_and_product"),)


class OrderStatus(models.TextChoices):
    """Where an order stands; the allowed steps are `shop.lifecycle.NEXT` and the trigger of migration 0002."""

    PENDING = "pending", _("Awaiting payment")
    PAID = "paid", _("Paid")
    CLOSED = "closed", _("Closed")
    REFUNDED = "refunded", _("Refunded")


class Order(models.Model):
    """What one user wants to buy, at the prices of the moment they said so.

    Its payment lives in the payments app under this id; there is no foreign key in either direction.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="orders")
    status = models.CharField(max_length=8, choices=OrderStatus.choices, default=OrderStatus.PENDING)
    version = models.PositiveBigIntegerField(default=1, editable=False)
    total_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    note = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    # set by the first step of closing: from then on no new payment may start, and the timer ends what a crash cut
    closing_at = models.DateTimeField(null=True, blank=True, editable=False)
    paid_at = models.DateTimeField(null=True, blank=True, editable=False)
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(status__in=OrderStatus.values), name="order_status_is_known"),
            models.CheckConstraint(condition=Q(version__gte=1), name="order_version_starts_at_one"),
            models.CheckConstraint(condition=Q(total_minor__gt=0), name="order_total_is_positive"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="order_currency_is_iso"),
            models.CheckConstraint(
                condition=Q(status="pending", paid_at__isnull=True, closed_at__isnull=True)
                | Q(status="closed", paid_at__isnull=True, closed_at__isnull=False)
                | Q(status__in=["paid", "refunded"], paid_at__isnull=False, closed_at__isnull=True),
                name="order_times_fit_status",
            ),
        )
        indexes = (
            models.Index(fields=["user", "-id"], name="order_by_user"),
            models.Index(fields=["expires_at"], name="order_open", condition=Q(status="pending")),
        )

    def __str__(self) -> str:
        return self.id.hex

    @cached_property
    def lines(self) -> list["OrderItem"]:
        """Its items, which never change; who has just written them sets them, and nobody reads them back."""
        return list(self.items.all())


class OrderItem(models.Model):
    """One product of an order; sku, name and price are copies, so that a later edit leaves the order as bought."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="items")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="+")
    sku = models.SlugField(max_length=64, db_index=False)
    name = models.CharField(max_length=120)
    quantity = models.PositiveIntegerField()
    price_minor = models.BigIntegerField()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=["order", "product"], name="item_once_per_order_and_product"),
            models.CheckConstraint(condition=Q(quantity__gt=0), name="item_quantity_is_positive"),
            models.CheckConstraint(condition=Q(price_minor__gt=0), name="item_price_is_positive"),
        )

    @property
    def subtotal_minor(self) -> int:
        """Price times quantity, in minor units."""
        return self.price_minor * self.quantity


class Fulfilment(models.Model):
    """What the warehouse is told about an order: to send it, or to leave it. One an order, made by its payment.

    `number` is that of the last event that was acted on; it only grows, so nothing is told in a wrong order.
    """

    class Status(models.TextChoices):
        """What the warehouse does."""

        RELEASED = "released", _("To be sent")
        RECALLED = "recalled", _("Not to be sent")

    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="fulfilment")
    status = models.CharField(max_length=8, choices=Status)
    number = models.PositiveBigIntegerField()
    released_at = models.DateTimeField(null=True, editable=False)
    recalled_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(status="released", released_at__isnull=False, recalled_at__isnull=True)
                | Q(status="recalled", recalled_at__isnull=False),
                name="fulfilment_times_fit_status",
            ),
        )

    def __str__(self) -> str:
        return f"{self.order_id.hex} {self.status}"


class FlashSale(models.Model):
    """Some units of a product, for a while, one a buyer.

    `sold` counts the purchases whose order is not closed. Migration 0004 takes the unit of a closed order back in
    the statement that closes it.
    """

    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="flash_sales")
    units = models.PositiveIntegerField()
    sold = models.PositiveIntegerField(default=0, editable=False)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1, editable=False)

    class Meta:
        ordering = ("-starts_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=["product", "starts_at"], name="flash_sale_one_start_a_product"),
            models.CheckConstraint(condition=Q(units__gt=0), name="flash_sale_units_are_positive"),
            models.CheckConstraint(
                condition=Q(sold__gte=0, sold__lte=F("units")), name="flash_sale_sold_within_units"
            ),
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="flash_sale_ends_after_its_start"
            ),
        )

    def __str__(self) -> str:
        return f"{self.product_id} {self.starts_at:%Y-%m-%d %H:%M}"


class FlashSalePurchase(models.Model):
    """A buyer's one unit of a sale, with the order that it became; `returned_at`: that order was closed unpaid."""

    sale = models.ForeignKey(FlashSale, on_delete=models.PROTECT, related_name="purchases")
    buyer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="flash_sale_purchase")
    place = models.PositiveBigIntegerField(
        null=True, editable=False, help_text=_("in the order of arrival; none where the database alone admitted")
    )
    bought_at = models.DateTimeField(default=timezone.now, editable=False)
    returned_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=["sale", "buyer"], condition=Q(returned_at__isnull=True), name="flash_sale_once_a_buyer"
            ),
        )

    def __str__(self) -> str:
        return f"{self.sale_id} {self.order_id.hex}"


class Campaign(models.Model):
    """A set of coupons that users draw from, one each."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name


class Coupon(models.Model):
    """One code, and who has drawn it."""

    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="coupons", db_index=False)
    code = models.CharField(max_length=32, unique=True)
    drawn_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, editable=False, related_name="+"
    )
    drawn_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["campaign", "drawn_by"],
                condition=Q(drawn_by__isnull=False),
                name="coupon_once_a_campaign_and_user",
            ),
            models.CheckConstraint(
                condition=Q(drawn_by__isnull=True, drawn_at__isnull=True)
                | Q(drawn_by__isnull=False, drawn_at__isnull=False),
                name="coupon_drawn_by_someone_at_some_time",
            ),
        )
        indexes = (
            models.Index(fields=["campaign", "id"], name="coupon_left", condition=Q(drawn_by__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.campaign_id} {self.pk}"
