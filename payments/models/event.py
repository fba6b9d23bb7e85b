"""Ordered events of a payment for handlers, and deliveries to other programs."""

from datetime import timedelta

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.ids import new_id
from payments.models.guards import fixed
from payments.models.payment import Payment

OPEN, ENDED = ["waiting", "sending"], ["delivered", "failed"]  # of a delivery's statuses
LIVES = Now() + timedelta(days=3)  # until when it is tried


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
        return f"{self.payment_id.hex} {self.number} {self.status_in_words}"

    @property
    def status_in_words(self) -> str:
        """The status as a person reads it."""
        return gettext(self.status.replace("_", " "))


class Delivery(models.Model):
    """Decision for one endpoint, staged as it was made. Its number is the ``webhook-id``.

    `due_at` is when it may be sent next; while it is sent, when the process that claimed it counts as dead.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENDING = "sending", _("is being sent")
        DELIVERED = "delivered", _("delivered")
        FAILED = "failed", _("given up")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    endpoint = models.CharField(max_length=64)
    type = models.CharField(max_length=32)
    payment = models.ForeignKey(
        Payment, on_delete=models.PROTECT, related_name="deliveries", null=True, db_index=False
    )
    sequence = models.PositiveIntegerField()
    data = models.JSONField()
    status = models.CharField(max_length=9, choices=Status, default=Status.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    log = models.JSONField(default=list, help_text="of each attempt: when, and the answer")
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())
    ends_at = models.DateTimeField(db_default=LIVES, help_text="no attempt begins later")
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "deliveries"
        permissions = [("replay_delivery", "Can send a delivery again")]
        constraints = (
            models.UniqueConstraint(fields=["payment", "endpoint", "sequence"], name="delivery_in_order"),
            models.UniqueConstraint(
                fields=["payment", "endpoint"], name="delivery_one_at_a_time", condition=Q(status="sending")
            ),
            fixed(
                "delivery_says_one_thing",
                *("id", "endpoint", "type", "payment_id", "sequence", "data", "created_at"),
                message="a delivery says the same at each attempt",
            ),
        )
        indexes = (
            models.Index(fields=["endpoint", "due_at"], name="delivery_due", condition=Q(status__in=OPEN)),
            models.Index(fields=["created_at"], name="delivery_given_up", condition=Q(status="failed")),
            # what the reaper has still to forget
            models.Index(
                Coalesce("delivered_at", "ends_at"),
                name="delivery_old",
                condition=Q(status__in=ENDED) & ~Q(log=[]),
            ),
        )

    def __str__(self) -> str:
        return gettext("%(type)s to %(endpoint)s") % {"type": self.type, "endpoint": self.endpoint}
