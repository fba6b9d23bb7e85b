"""Products with their stock, and likes."""

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Sum, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

SEGMENTS_MAX = 64  # of a product's stock; more than concurrent connections help nobody


class StockStrategy(models.TextChoices):
    """Ways to take a product's units; see `shop.stock`."""

    CONDITIONAL = "conditional", _("One row, conditional update")
    VERSION = "version", _("One row, version and retry")
    ROW_LOCK = "row_lock", _("One row, locked")
    SEGMENTED = "segmented", _("Several rows, for a product that many buy at once")


class ProductQuerySet(models.QuerySet["Product"]):
    def with_units(self) -> Self:
        """Add `units`: what can be ordered, wherever the strategy stores it."""
        segments = (
            StockSegment.objects.filter(product=OuterRef("pk"))
            .order_by()
            .values("product")
            .annotate(sum=Sum("units"))
            .values("sum")
        )
        in_segments = When(stock_strategy=StockStrategy.SEGMENTED, then=Coalesce(Subquery(segments), 0))
        return self.annotate(units=Case(in_segments, default=F("stock"), output_field=models.IntegerField()))


class Named:
    """Mixin: a name in the active language where it is translated, else as first written."""

    __slots__ = ()
    name: str
    name_zh: str

    @property
    def local_name(self) -> str:
        return (_is_chinese() and self.name_zh) or self.name

    def __str__(self) -> str:
        return self.local_name


class InLanguage(Named):
    """Mixin: a description too."""

    __slots__ = ()
    description: str
    description_zh: str

    @property
    def local_description(self) -> str:
        return (_is_chinese() and self.description_zh) or self.description


def _is_chinese() -> bool:
    return (get_language() or "").startswith("zh")


class Product(InLanguage, models.Model):
    """A thing for sale. Units in open orders are already off its stock.

    `stock` can still be ordered; for a segmented product it is zero, and the units are in the segments. Read the
    number by `ProductQuerySet.with_units`.
    """

    class Picture(models.TextChoices):
        """Symbols of the sprite `static/shop/art.svg`."""

        PARCEL = "parcel", _("Parcel")
        MUG = "mug", _("Mug")
        POSTER = "poster", _("Poster")
        SNEAKER = "sneaker", _("Sneaker")

    sku = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    name_zh = models.CharField(_("name in Chinese"), max_length=120, blank=True, default="", db_default="")
    description = models.TextField(blank=True)
    description_zh = models.TextField(_("description in Chinese"), blank=True, default="", db_default="")
    picture = models.CharField(max_length=16, choices=Picture.choices, default=Picture.PARCEL)
    price_minor = models.BigIntegerField(help_text=_("in the currency's minor unit: 1990 is ¥19.90"))
    currency = models.CharField(max_length=3, default="CNY", help_text=_("ISO 4217"))
    stock = models.IntegerField(default=0)
    # database defaults too, for inserts that do not name the columns
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


class StockSegment(models.Model):
    """A part of a segmented product's units, so that buyers lock different rows."""

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
    """A user's like of a product; the unique constraint makes a second one a no-op."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="likes")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "product"], name="like_once_per_user_and_product"),)

    def __str__(self) -> str:
        return gettext("%(product)s, liked by %(user)s") % {"product": self.product, "user": self.user}
