"""A provider's daily bill against our facts, line by line."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from payments.models.choices import choices
from payments.models.guards import stored
from payments.models.payment import Payment
from payments.providers.base import FactKind


class BillComparison(models.Model):
    """Day of one merchant account, as last compared with its bill."""

    channel = models.CharField(max_length=16)
    merchant = models.CharField(max_length=64)
    day = models.DateField(help_text="in the provider's time zone")
    lines = models.PositiveIntegerField(help_text="of the bill")
    currency = models.CharField(max_length=3, help_text="of an account that has one; else that of the first line")
    theirs_minor = models.BigIntegerField(help_text="paid less refunded, by the bill")
    ours_minor = models.BigIntegerField(help_text="paid less refunded, by our facts of that day")
    compared_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-day", "channel")
        constraints = (
            models.UniqueConstraint(fields=["channel", "merchant", "day"], name="bill_once_per_account_and_day"),
            stored("bill_stays"),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.merchant}"


class Difference(models.Model):
    """Line in which bill and facts differ, open until they agree or a person settles it."""

    class Kind(models.TextChoices):
        MISSING_HERE = "missing_here", _("in the bill, unknown to us")
        MISSING_THERE = "missing_there", _("known to us, not in the bill")
        AMOUNT = "amount", _("in another amount")

    comparison = models.ForeignKey(
        BillComparison, on_delete=models.PROTECT, related_name="differences", db_index=False
    )
    kind = models.CharField(max_length=13, choices=Kind)
    moved = models.CharField(max_length=8, choices=choices(FactKind), help_text="what moved")
    provider_txn_id = models.CharField(max_length=64)
    out_trade_no = models.CharField(max_length=64)
    out_refund_no = models.CharField(max_length=64, blank=True)
    theirs_minor = models.BigIntegerField(null=True)
    ours_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3)
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="differences", null=True)
    resolution = models.CharField(max_length=160, blank=True)
    resolved_at = models.DateTimeField(null=True)
    found_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        permissions = [("resolve_difference", "Can resolve a difference")]
        constraints = (
            models.UniqueConstraint(
                fields=["comparison", "moved", "provider_txn_id"], name="difference_once_per_line"
            ),
            models.CheckConstraint(
                condition=Q(kind="missing_here", theirs_minor__isnull=False, ours_minor__isnull=True)
                | Q(kind="missing_there", theirs_minor__isnull=True, ours_minor__isnull=False)
                | Q(kind="amount", theirs_minor__isnull=False, ours_minor__isnull=False),
                name="difference_fits_kind",
            ),
            stored("difference_stays"),
        )
        indexes = (
            models.Index(fields=["found_at"], name="difference_open", condition=Q(resolved_at__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.get_moved_display()} {self.provider_txn_id}"
