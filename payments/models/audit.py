"""Acts of operators about money, and calls to providers. Append-only, by trigger."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from payments.models.guards import stored


class AuditEntry(models.Model):
    """Act of an operator: who, about what, and in words what, why and with which result.

    No foreign keys: it outlives the row and the operator's account, whose name stays here as text.
    """

    subject = models.CharField(max_length=80, help_text="the row that it is about, as in payment:0190…")
    operator = models.CharField(max_length=254, help_text="their user name at that time")
    operator_id = models.CharField(max_length=64, help_text="the primary key of their account at that time")
    message = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        verbose_name_plural = "audit entries"
        constraints = (stored("audit_entry_stays", on="UPDATE OR DELETE"),)
        indexes = (models.Index(fields=["subject"], name="audit_by_subject"),)

    def __str__(self) -> str:
        return _("%(subject)s by %(operator)s") % {"subject": self.subject, "operator": self.operator}


class ProviderCall(models.Model):
    """Call to a provider about an attempt or a refund of it; none of a process that died in it."""

    attempt = models.ForeignKey("payments.Attempt", on_delete=models.PROTECT, related_name="calls")
    method = models.CharField(max_length=16, help_text="of `payments.providers.base.Provider`")
    answer = models.CharField(max_length=200, help_text="a status, or the error")
    failed = models.BooleanField(help_text="no answer that can be used")
    milliseconds = models.PositiveIntegerField()
    ended_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = (stored("provider_call_stays", on="UPDATE OR DELETE"),)

    def __str__(self) -> str:
        return f"{self.method} of {self.attempt_id.hex}: {self.answer}"


def subject_of(row: models.Model) -> str:
    """`payment:0190…` for a payment, `anomaly:7` for anomaly 7."""
    return f"{row._meta.model_name}:{row.pk}"
