"""Calls to providers about attempts and their refunds. Append-only, by trigger."""

from django.db import models
from django.db.models.functions import Now

from payments.models.guards import stored


class ProviderCall(models.Model):
    """One call to a provider: when, what, how long, and what it said; none of a process that died in it."""

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
