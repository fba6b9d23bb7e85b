"""What is known about money: payments, attempts, observed facts, notifications, refunds, anomalies.

Fields and constraints only. Writers: `payments.services` (payments and attempts until a provider has spoken),
`payments.observations` (facts, and every state that follows from them), `payments.refunds` (refunds),
`payments.webhooks` (notifications). Amounts are integers in the currency's minor unit.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from idempotency.ids import new_id
from payments.providers.base import FactKind, NextActionType
from payments.states import LIVE_ATTEMPTS, AttemptStatus, PaymentStatus, RefundStatus


def _choices(
    values: type[PaymentStatus | AttemptStatus | RefundStatus | FactKind | NextActionType],
) -> list[tuple[str, str]]:
    return [(value.value, value.value.replace("_", " ")) for value in values]


class Payment(models.Model):
    """The one payment of an order, however many attempts it takes.

    `order_id` is the shop's, without a foreign key: payments know nothing of orders. Its unique constraint is
    what makes a second payment of an order impossible.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    order_id = models.UUIDField(unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=20, choices=_choices(PaymentStatus), default=PaymentStatus.PENDING.value)
    version = models.PositiveBigIntegerField(default=1)
    paid_minor = models.BigIntegerField(default=0)
    refunded_minor = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="payment_amount_is_positive"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="payment_currency_is_iso"),
            models.CheckConstraint(condition=Q(version__gte=1), name="payment_version_starts_at_one"),
            # credited is nothing or the exact amount: another sum is an anomaly, never a credit
            models.CheckConstraint(
                condition=Q(paid_minor=0) | Q(paid_minor=F("amount_minor")), name="payment_paid_in_full"
            ),
            models.CheckConstraint(
                condition=Q(refunded_minor__gte=0, refunded_minor__lte=F("paid_minor")),
                name="payment_refunds_within_paid",
            ),
            # the status can only say what the totals say
            models.CheckConstraint(
                condition=Q(status__in=["pending", "uncertain", "closed"], paid_minor=0)
                | Q(status="succeeded", paid_minor__gt=0, refunded_minor=0)
                | Q(status="partially_refunded", refunded_minor__gt=0, refunded_minor__lt=F("paid_minor"))
                | Q(status="refunded", paid_minor__gt=0, refunded_minor=F("paid_minor")),
                name="payment_status_fits_totals",
            ),
        )

    def __str__(self) -> str:
        return self.id.hex


class Attempt(models.Model):
    """One trade at one provider, under our own number: `out_trade_no` is this row's id.

    The row is committed before the provider is called, so that after any crash we know which number to ask for.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="attempts")
    channel = models.CharField(max_length=16)
    merchant = models.CharField(max_length=64)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    description = models.CharField(max_length=127)
    status = models.CharField(max_length=12, choices=_choices(AttemptStatus), default=AttemptStatus.CREATED.value)
    next_action_type = models.CharField(max_length=8, choices=_choices(NextActionType), blank=True)
    next_action_url = models.TextField(blank=True)
    message = models.CharField(max_length=255, blank=True, help_text="the provider's word on a refusal")
    # recovery point: from here on the provider may know the number, so ask before anything else
    submitted_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    next_query_at = models.DateTimeField(null=True, help_text="when the timer asks the provider next")
    query_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="attempt_amount_is_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in AttemptStatus]), name="attempt_status_is_known"
            ),
            models.UniqueConstraint(
                fields=["payment", "channel"],
                condition=Q(status__in=sorted(status.value for status in LIVE_ATTEMPTS)),
                name="attempt_one_live_per_payment_and_channel",
            ),
        )
        indexes = (
            models.Index(
                fields=["next_query_at"],
                name="attempt_due",
                condition=Q(status__in=sorted(status.value for status in LIVE_ATTEMPTS)),
            ),
        )

    def __str__(self) -> str:
        return self.out_trade_no

    @property
    def out_trade_no(self) -> str:
        """Our number at the provider: 32 characters."""
        return self.id.hex

    @property
    def is_live(self) -> bool:
        """Whether the shopper may still pay it."""
        return self.status in LIVE_ATTEMPTS


class Observation(models.Model):
    """A fact about money at a provider, kept once, whoever told it and however often.

    Its unique constraint is what makes ten copies of a notification one credit.
    """

    channel = models.CharField(max_length=16)
    merchant = models.CharField(max_length=64)
    provider_txn_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=8, choices=_choices(FactKind))
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="observations")
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    out_refund_no = models.CharField(max_length=64, blank=True)
    credited = models.BooleanField(default=False, help_text="counts towards the payment's totals")
    source = models.CharField(max_length=32, help_text="who told us first")
    occurred_at = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["channel", "merchant", "provider_txn_id", "kind"], name="observation_once_per_fact"
            ),
            models.CheckConstraint(condition=Q(amount_minor__gte=0), name="observation_amount_not_negative"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.provider_txn_id}"


class Notification(models.Model):
    """The raw word of a provider, genuine and kept before it is acknowledged. One row, however many copies."""

    class Verdict(models.TextChoices):
        """What became of it; a row without a final verdict is processed again when its next copy arrives."""

        APPLIED = "applied", "applied"
        DUPLICATE = "duplicate", "told nothing new"
        ANOMALY = "anomaly", "anomaly"
        IGNORED = "ignored", "moves no money"
        ERROR = "error", "failed, will be processed again"

    channel = models.CharField(max_length=16)
    notification_id = models.CharField(max_length=128)
    event_type = models.CharField(max_length=64)
    headers = models.JSONField(default=dict)
    body = models.BinaryField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of what it says, hexadecimal")
    verdict = models.CharField(max_length=12, choices=Verdict)
    detail = models.TextField(blank=True)
    out_trade_no = models.CharField(max_length=64, blank=True, db_index=True)
    received_at = models.DateTimeField(db_default=Now())
    processed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=["channel", "notification_id"], name="notification_once_per_id"),
            models.CheckConstraint(
                condition=Q(verdict="error") | Q(processed_at__isnull=False),
                name="notification_verdict_has_a_time",
            ),
        )

    def __str__(self) -> str:
        return self.notification_id


class Anomaly(models.Model):
    """Something about money that a person should look at; the machine has already done what the policy says."""

    class Kind(models.TextChoices):
        UNKNOWN_TRADE = "unknown_trade", "a fact about a number that is not ours"
        AMOUNT_MISMATCH = "amount_mismatch", "paid in another amount or currency"
        MERCHANT_MISMATCH = "merchant_mismatch", "paid to another merchant"
        PAID_AFTER_CLOSE = "paid_after_close", "paid after the order was closed"
        PAID_TWICE = "paid_twice", "paid by a second channel"
        CONTENT_CHANGED = "content_changed", "told again with other content"
        REFUND_EXCEEDS_PAID = "refund_exceeds_paid", "refunded more than was paid"
        REFUND_FAILED = "refund_failed", "a refund was refused"
        NOTIFICATION_FAILED = "notification_failed", "a notification could not be processed"

    kind = models.CharField(max_length=24, choices=Kind)
    channel = models.CharField(max_length=16)
    reference = models.CharField(max_length=160, help_text="number of the trade, refund or notification")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="anomalies", null=True)
    detail = models.JSONField(default=dict)
    resolution = models.CharField(max_length=160, blank=True)
    resolved_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "anomalies"
        constraints = (
            models.UniqueConstraint(fields=["kind", "channel", "reference"], name="anomaly_filed_once"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"


class Refund(models.Model):
    """Money on its way back. The row, reserved under the payment's lock, is committed before the provider hears.

    `out_refund_no` at the provider is this row's id, so the same refund can be asked for any number of times.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="refunds")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="refunds")
    amount_minor = models.BigIntegerField()
    reason = models.CharField(max_length=80, blank=True)
    status = models.CharField(max_length=12, choices=_choices(RefundStatus), default=RefundStatus.REQUESTED.value)
    message = models.CharField(max_length=255, blank=True)
    # a refund that our policy makes gives back what was never credited; it does not touch the payment's totals
    anomaly = models.OneToOneField(Anomaly, on_delete=models.PROTECT, related_name="refund", null=True)
    submitted_at = models.DateTimeField(null=True)
    next_query_at = models.DateTimeField(null=True)
    query_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="refund_amount_is_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in RefundStatus]), name="refund_status_is_known"
            ),
        )

    def __str__(self) -> str:
        return self.out_refund_no

    @property
    def out_refund_no(self) -> str:
        """Our number of the refund at the provider: 32 characters."""
        return self.id.hex
