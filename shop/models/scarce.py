"""Flash sales and coupons: one a buyer."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from shop.models.order import Order
from shop.models.product import Named, Product


class FlashSale(models.Model):
    """Units of a product for a limited time, one a buyer.

    `sold` counts the purchases whose order is not closed; a trigger of the first migration takes a closed order's
    unit back in the statement that closes it.
    """

    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="flash_sales", db_index=False)
    units = models.PositiveIntegerField()
    sold = models.PositiveIntegerField(default=0, editable=False)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    former_price_minor = models.BigIntegerField(
        null=True, blank=True, help_text=_("what it cost before, to be shown struck through")
    )
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
            models.CheckConstraint(
                condition=Q(former_price_minor__isnull=True) | Q(former_price_minor__gt=0),
                name="flash_sale_former_price_is_positive",
            ),
        )

    def __str__(self) -> str:
        return f"{self.product}, {self.starts_at:%Y-%m-%d %H:%M} UTC"


class FlashSalePurchase(models.Model):
    """A buyer's unit of a sale and its order; `returned_at`: when that closed unpaid."""

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
        return gettext("%(sale)s: order %(number)s") % {"sale": self.sale, "number": self.order_id.hex}


class Campaign(Named, models.Model):
    """A set of coupons that users draw from, one each.

    `percent_off` is what one takes off an order; with 0 the codes are for elsewhere.
    """

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    name_zh = models.CharField(_("name in Chinese"), max_length=120, blank=True, default="", db_default="")
    percent_off = models.PositiveSmallIntegerField(default=0, db_default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(percent_off__gte=0, percent_off__lte=90), name="campaign_leaves_something_to_pay"
            ),
        )


class Coupon(models.Model):
    """A code, who has drawn it, and the order that it lowers; a closed one leaves it free."""

    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="coupons", db_index=False)
    code = models.CharField(max_length=32, unique=True)
    drawn_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, editable=False, related_name="+"
    )
    drawn_at = models.DateTimeField(null=True, editable=False)
    order = models.OneToOneField(Order, on_delete=models.PROTECT, null=True, editable=False, related_name="coupon")

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
            models.CheckConstraint(
                condition=Q(order__isnull=True) | Q(drawn_by__isnull=False), name="coupon_used_only_if_drawn"
            ),
        )
        indexes = (
            models.Index(fields=["campaign", "id"], name="coupon_left", condition=Q(drawn_by__isnull=True)),
        )

    def __str__(self) -> str:
        return gettext("%(campaign)s, coupon %(number)s") % {"campaign": self.campaign, "number": self.pk}
