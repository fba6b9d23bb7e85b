"""Orders with their items, and instructions to the warehouse."""

from collections.abc import Mapping

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.ids import new_id
from idempotency.postgres.guards import Guard, no_step, unversioned
from shop.models.product import Product


class OrderStatus(models.TextChoices):
    """State of an order; the allowed steps are `NEXT`."""

    PENDING = "pending", _("Awaiting payment")
    PAID = "paid", _("Paid")
    CLOSED = "closed", _("Closed")
    REFUNDED = "refunded", _("Refunded")


# the allowed steps; a guard of the model refuses every other one, from any writer
NEXT: Mapping[OrderStatus, frozenset[OrderStatus]] = {
    OrderStatus.PENDING: frozenset({OrderStatus.PAID, OrderStatus.CLOSED}),
    OrderStatus.PAID: frozenset({OrderStatus.REFUNDED}),
    OrderStatus.CLOSED: frozenset(),
    OrderStatus.REFUNDED: frozenset(),
}


class Order(models.Model):
    """A user's order at the prices of its moment.

    Its payment is in the payments app under this id; there is no foreign key in either direction.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="orders", db_index=False
    )
    status = models.CharField(max_length=8, choices=OrderStatus.choices, default=OrderStatus.PENDING)
    version = models.PositiveBigIntegerField(default=1, editable=False)
    total_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    note = models.CharField(max_length=500, blank=True)
    # in which it was ordered, for the receipt
    language = models.CharField(max_length=16, blank=True, default="", db_default="", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    # set by the first step of closing: no new payment may start, and the timer finishes what a crash cut off
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
            # else a paid order is deleted and inserted again by someone who may not unpay it
            Guard(
                name="order_stays",
                on="DELETE OR UPDATE OF id",
                message="it stays, under its number",
                error="restrict_violation",
            ),
            Guard(
                name="order_begins_pending",
                on="INSERT",
                when="NEW.status <> 'pending'",
                message="an order begins as pending",
            ),
            Guard(
                name="order_step_is_allowed",
                on="UPDATE",
                when=no_step(NEXT),
                message="its new status is not a step of an order",
            ),
            Guard(
                name="order_version_only_grows",
                on="UPDATE",
                when=unversioned("status"),
                message="its version goes back, or a new status has no new version",
            ),
        )
        indexes = (
            models.Index(fields=["user", "-id"], name="order_by_user"),
            models.Index(fields=["expires_at"], name="order_open", condition=Q(status="pending")),
        )

    def __str__(self) -> str:
        return self.id.hex

    @property
    def short_number(self) -> str:
        """Number as a shopper reads it out: ``79D332``."""
        return str(self.id.hex[-6:].upper())

    @cached_property
    def lines(self) -> list["OrderItem"]:
        """Items, which never change; their writer sets them, so that they are not read back."""
        return list(self.items.all())

    def title(self, name: str) -> str:
        """Return the first item, by `name`, and the number of others: ``Mug × 2 and 1 more``."""
        first, units = self.lines[0].quantity, sum(item.quantity for item in self.lines)
        counted = f"{name} × {first}" if first > 1 else name
        if units == first:
            return counted
        # each language counts in its own way: the further units, or all
        return gettext("%(first)s and %(more)s more") % {"first": counted, "more": units - first, "units": units}

    @property
    def discount_minor(self) -> int:
        return sum(item.subtotal_minor for item in self.lines) - self.total_minor


class OrderItem(models.Model):
    """A product of an order; copies of sku, name and price leave it as bought."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="items", db_index=False)
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

    def __str__(self) -> str:
        return gettext("%(quantity)s of %(sku)s") % {"quantity": self.quantity, "sku": self.sku}

    @property
    def local_name(self) -> str:
        """Name in the reader's language, unless the product was renamed since; needs `product`."""
        bought_as = {self.product.name, self.product.name_zh}
        return self.product.local_name if self.name in bought_as else self.name

    @property
    def subtotal_minor(self) -> int:
        return self.price_minor * self.quantity


class Fulfilment(models.Model):
    """The instruction to the warehouse to send an order or not; one an order.

    `number` is that of the last handled event; it only grows, so events act in order.
    """

    class Status(models.TextChoices):
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
        return f"{self.order_id.hex} {self.get_status_display()}"
