"""Facts that providers reported, raw notifications, and anomalies for a person to look at."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from idempotency.postgres.indexes import BlockRangeIndex
from payments.models.choices import choices, text
from payments.models.guards import stored
from payments.providers.base import FactKind
from payments.states import AnomalyKind, OfAccount, needs_approval


class Observation(models.Model):
    """A fact about money at a provider, stored once, from any source and however often.

    Its unique constraint is what makes ten copies of a notification one credit.
    """

    channel = models.CharField(max_length=16)
    merchant = models.CharField(max_length=64)
    provider_txn_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=8, choices=choices(FactKind))
    attempt = models.ForeignKey("payments.Attempt", on_delete=models.PROTECT, related_name="observations")
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    out_refund_no = models.CharField(max_length=64, blank=True)
    paid_txn_id = text(64, help_text="of a refund: the charge it takes back, if named")
    credited = models.BooleanField(default=False, help_text="counts towards the payment's totals")
    source = models.CharField(max_length=32, help_text="how we learned it first")
    occurred_at = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["channel", "merchant", "provider_txn_id", "kind"], name="observation_once_per_fact"
            ),
            models.CheckConstraint(condition=Q(amount_minor__gte=0), name="observation_amount_not_negative"),
            stored("observation_stays"),
            # all that may change of a fact is that it begins to count
            stored(
                "observation_is_fixed",
                on="UPDATE",
                when="NOT (NEW.credited AND NOT OLD.credited) "
                "OR to_jsonb(NEW) - 'credited' <> to_jsonb(OLD) - 'credited'",
                message="a fact stays as it was reported",
            ),
        )
        # for the facts of a day, beside its bill; storing one pays next to nothing
        indexes = (BlockRangeIndex(fields=["occurred_at", "observed_at"], name="observation_by_time"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.provider_txn_id}"


class Notification(OfAccount, models.Model):
    """Genuine notification, stored before it is acknowledged. One row for all its copies."""

    class Verdict(models.TextChoices):
        """Verdict on it; a row without a final one is processed again when its next copy arrives."""

        APPLIED = "applied", _("applied")
        DUPLICATE = "duplicate", _("said nothing new")
        HELD = "held", _("came early, waits for its payment")
        QUARANTINED = "quarantined", _("an id that we know with other content")
        ANOMALY = "anomaly", _("anomaly")
        IGNORED = "ignored", _("moves no money")
        ERROR = "error", _("failed, will be processed again")

    channel = models.CharField(max_length=16)
    account_key = text(64)  # empty for the account that is named like its channel
    notification_id = models.CharField(max_length=128)
    event_type = models.CharField(max_length=64)
    headers = models.JSONField(default=dict)
    body = models.BinaryField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of what it says, hexadecimal")
    verdict = models.CharField(max_length=12, choices=Verdict)
    detail = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=1, help_text="how often it was processed; copies do not count")
    out_trade_no = models.CharField(max_length=64, blank=True)
    received_at = models.DateTimeField(db_default=Now())
    processed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        permissions = [("replay_notification", "Can process a notification again")]
        constraints = (
            models.UniqueConstraint(fields=["channel", "notification_id"], name="notification_once_per_id"),
            models.CheckConstraint(
                condition=Q(verdict="error") | Q(processed_at__isnull=False),
                name="notification_verdict_has_a_time",
            ),
            stored("notification_stays"),
        )
        indexes = (models.Index(fields=["out_trade_no"], name="notification_by_trade"),)

    def __str__(self) -> str:
        return self.notification_id


class Anomaly(models.Model):
    """Money that a person should look at; the policy has been applied already."""

    class Kind(models.TextChoices):
        """`AnomalyKind` with the words that a person reads."""

        UNKNOWN_TRADE = AnomalyKind.UNKNOWN_TRADE, _("a fact about a number that is not ours")
        AMOUNT_MISMATCH = AnomalyKind.AMOUNT_MISMATCH, _("paid in another amount or currency")
        MERCHANT_MISMATCH = AnomalyKind.MERCHANT_MISMATCH, _("paid to another merchant")
        PAID_AFTER_CLOSE = AnomalyKind.PAID_AFTER_CLOSE, _("paid after the order was closed")
        PAID_TWICE = AnomalyKind.PAID_TWICE, _("paid twice")
        CONTENT_CHANGED = AnomalyKind.CONTENT_CHANGED, _("reported again with other content")
        REFUND_EXCEEDS_PAID = AnomalyKind.REFUND_EXCEEDS_PAID, _("refunded more than was paid")
        REFUND_FAILED = AnomalyKind.REFUND_FAILED, _("a refund was refused")
        NOTIFICATION_FAILED = AnomalyKind.NOTIFICATION_FAILED, _("a notification could not be processed")
        DISPUTED = AnomalyKind.DISPUTED, _("disputed, or taken back by the provider")

    kind = models.CharField(max_length=24, choices=Kind)
    channel = models.CharField(max_length=16)
    reference = models.CharField(max_length=160, help_text="number of the trade, refund or notification")
    payment = models.ForeignKey("payments.Payment", on_delete=models.PROTECT, related_name="anomalies", null=True)
    detail = models.JSONField(default=dict)
    resolution = models.CharField(max_length=160, blank=True)
    resolved_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "anomalies"
        permissions = [("resolve_anomaly", "Can resolve an anomaly")]
        constraints = (
            models.UniqueConstraint(fields=["kind", "channel", "reference"], name="anomaly_filed_once"),
            stored("anomaly_stays"),
        )
        indexes = (
            models.Index(fields=["id"], name="anomaly_open", condition=Q(resolved_at__isnull=True)),
            # as its list is ordered
            models.Index(F("resolved_at").desc(nulls_first=True), F("id"), name="anomaly_by_end"),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.reference}"

    @property
    def needs_approval(self) -> bool:
        """Check if an operator must approve or decline its refund."""
        return self.resolved_at is None and needs_approval(self.detail)
