"""Ordered events of a payment, for handlers that act on them afterwards."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from payments.models.payment import Payment


class PaymentEvent(models.Model):
    """A new status of a payment, to be acted on once and in order.

    `number` is the payment's version at that moment, so it grows and cannot be given twice.
    """

    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="events", db_index=False)
    number = models.PositiveBigIntegerField()
    status = models.CharField(max_length=20)
    paid_minor = models.BigIntegerField()
    refunded_minor = models.BigIntegerField()
    attempts = models.PositiveIntegerField(default=0, help_text="how often acting on it was tried and failed")
    created_at = models.DateTimeField(db_default=Now())
    handled_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=["payment", "number"], name="event_once_per_version"),)
        indexes = (
            models.Index(fields=["created_at"], name="event_waiting", condition=Q(handled_at__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.payment_id.hex} {self.number} {self.status.replace('_', ' ')}"
