"""An order's payment, its attempts and its refunds. Amounts are in minor units."""

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from idempotency.ids import new_id
from idempotency.postgres.guards import Guard, shrinks, unversioned
from payments.models.choices import choices, text
from payments.models.facts import Anomaly
from payments.models.guards import begins, fixed, steps, stored
from payments.providers.actions import NextAction
from payments.states import (
    ATTEMPT_NEXT,
    LIVE_ATTEMPTS,
    NEXT,
    OPEN_REFUNDS,
    REFUND_NEXT,
    AttemptStatus,
    OfAccount,
    PaymentStatus,
    RefundStatus,
)

_IS_LIVE = Q(status__in=sorted(status.value for status in LIVE_ATTEMPTS))
_IS_OPEN = Q(status__in=sorted(status.value for status in OPEN_REFUNDS))

SHORT = timedelta(seconds=30)  # a link that lives no longer is not given out: the shopper has to get there


class Payment(models.Model):
    """The one payment of an order, however many attempts it takes.

    The unique `order_id` is the order's primary key where that is a UUID, else made of it (`payments.order_keys`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    order_id = models.UUIDField(unique=True)
    order_key = text(255, help_text="the order's primary key as text; empty where it is `order_id`")
    order_model = text(255, help_text="of which the key is, as app.model; empty for a UUID")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=20, choices=choices(PaymentStatus), default=PaymentStatus.PENDING.value)
    version = models.PositiveBigIntegerField(default=1)
    paid_minor = models.BigIntegerField(default=0)
    refunded_minor = models.BigIntegerField(default=0)
    reserved_minor = models.BigIntegerField(default=0, help_text="on its way back: refunds that are not over yet")
    disputed_minor = models.BigIntegerField(
        default=0, db_default=0, help_text="taken by disputes of what was paid, and not returned"
    )
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        permissions = [
            ("query_payment", "Can ask the provider about a payment"),
            ("refund_payment", "Can refund a payment"),
            ("tell_outcome", "Can record what became of a payment or refund"),
        ]
        constraints = (
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="payment_amount_is_positive"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="payment_currency_is_iso"),
            models.CheckConstraint(condition=Q(version__gte=1), name="payment_version_starts_at_one"),
            # credited is nothing or the exact amount: another sum is an anomaly, never a credit
            models.CheckConstraint(
                condition=Q(paid_minor=0) | Q(paid_minor=F("amount_minor")), name="payment_paid_in_full"
            ),
            models.CheckConstraint(
                condition=Q(refunded_minor__gte=0, reserved_minor__gte=0)
                & Q(refunded_minor__lte=F("paid_minor") - F("reserved_minor")),
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
            stored("payment_stays"),
            begins("payment_begins", {PaymentStatus.PENDING}),
            fixed(
                "payment_identity_is_fixed",
                *("id", "order_id", "order_key", "amount_minor", "currency", "owner_id"),
                message="its order, owner and amount are for good",
            ),
            steps("payment_step_is_allowed", NEXT, of="a payment"),
            Guard(
                name="payment_totals_only_grow",
                on="UPDATE",
                when=shrinks("paid_minor", "refunded_minor"),
                message="its totals only grow",
            ),
            Guard(
                name="payment_version_only_grows",
                on="UPDATE",
                when=unversioned("status", "paid_minor", "refunded_minor", "reserved_minor"),
                message="a change needs a new version",
            ),
        )

    def __str__(self) -> str:
        return self.id.hex

    @property
    def order_no(self) -> str:
        """Number of the order for people and programs: its key as text, a UUID as 32 characters."""
        return self.order_key or self.order_id.hex

    @property
    def refundable_minor(self) -> int:
        """Compute what is paid, and neither back, nor on its way back, nor taken by a dispute."""
        return max(0, self.paid_minor - self.refunded_minor - self.reserved_minor - self.disputed_minor)


class Attempt(OfAccount, models.Model):
    """Trade at one provider, under our own number: `out_trade_no` is this row's id.

    The row is committed before the provider is called, so that after any crash we know which number to ask for.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="attempts")
    channel = models.CharField(max_length=16)
    account_key = text(64)  # empty for the account that is named like its channel
    merchant = models.CharField(max_length=64)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    description = models.CharField(max_length=127)
    method = models.CharField(max_length=16)
    payer = models.JSONField(default=dict, help_text="what the method must know of the shopper; until it is open")
    status = models.CharField(max_length=12, choices=choices(AttemptStatus), default=AttemptStatus.CREATED.value)
    next_action_type = models.CharField(max_length=16, blank=True)
    next_action_url = models.TextField(blank=True)
    next_action_params = models.JSONField(default=dict)
    next_action_expires_at = models.DateTimeField(null=True, help_text="empty: as long as the trade can be paid")
    reference = models.CharField(max_length=64, blank=True, help_text="the provider's own number, if asked by it")
    message = models.CharField(max_length=255, blank=True, help_text="the provider's word on a refusal")
    # recovery point: from here on the provider may know the number, so ask before anything else
    submitted_at = models.DateTimeField(null=True)
    # from here on a capture may be carried out; empty again once the provider has said what became of it
    capture_submitted_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    next_query_at = models.DateTimeField(null=True, help_text="when the timer asks the provider next")
    query_count = models.PositiveIntegerField(default=0)
    asked_at = models.DateTimeField(null=True, help_text="when a shopper last had the provider asked")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="attempt_amount_is_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in AttemptStatus]), name="attempt_status_is_known"
            ),
            models.UniqueConstraint(
                fields=["payment", "channel", "method"],
                condition=_IS_LIVE,
                name="attempt_one_live_per_payment_and_method",
            ),
            stored("attempt_stays"),
            # one that is brought along may be open at its provider
            begins("attempt_begins", {AttemptStatus.CREATED, AttemptStatus.PENDING}),
            fixed(
                "attempt_identity_is_fixed",
                *("id", "payment_id", "channel", "account_key", "method", "merchant", "amount_minor", "currency"),
                message="what the provider has of it is for good",
            ),
            steps("attempt_step_is_allowed", ATTEMPT_NEXT, of="an attempt"),
        )
        indexes = (models.Index(fields=["next_query_at"], name="attempt_due", condition=_IS_LIVE),)

    def __str__(self) -> str:
        return self.out_trade_no

    @property
    def out_trade_no(self) -> str:
        """Number of ours at the provider: 32 characters."""
        return self.id.hex

    @property
    def next_action(self) -> NextAction | None:
        """Next step of the shopper; None unless it is open."""
        if self.status != AttemptStatus.PENDING:
            return None
        return NextAction(
            type=self.next_action_type, url=self.next_action_url, params=self.next_action_params or {}
        )

    @property
    def is_live(self) -> bool:
        """Check if the shopper may still pay it."""
        return self.status in LIVE_ATTEMPTS

    @property
    def action_is_over(self) -> bool:
        """Check if its link or code can be used no more, or not for long enough to be given out."""
        return self.next_action_expires_at is not None and self.next_action_expires_at <= timezone.now() + SHORT


class Refund(models.Model):
    """Money on its way back, reserved and committed before the provider is called.

    `out_refund_no` at the provider is this row's id, so the same refund can be asked for any number of times.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="refunds")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="refunds")
    amount_minor = models.BigIntegerField()
    reason = models.CharField(max_length=80, blank=True)
    status = models.CharField(max_length=12, choices=choices(RefundStatus), default=RefundStatus.REQUESTED.value)
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
            stored("refund_stays"),
            begins("refund_begins", {RefundStatus.REQUESTED}),
            fixed(
                "refund_identity_is_fixed",
                *("id", "payment_id", "attempt_id", "amount_minor", "anomaly_id"),
                message="its payment and amount are for good",
            ),
            steps("refund_step_is_allowed", REFUND_NEXT, of="a refund"),
        )
        indexes = (
            models.Index(fields=["next_query_at"], name="refund_due", condition=_IS_OPEN),
            models.Index(fields=["created_at"], name="refund_by_time"),
        )

    def __str__(self) -> str:
        return self.out_refund_no

    @property
    def currency(self) -> str:
        """Currency of the refunded charge; a policy refund's may differ from the payment's."""
        about = self.anomaly.detail if self.anomaly is not None else {}
        return str(about.get("currency") or self.payment.currency)

    @property
    def out_refund_no(self) -> str:
        """Number of ours for the refund at the provider: 32 characters."""
        return self.id.hex
