"""The ledger table. Fields and constraints only; `idempotency.ledger` is its only writer."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from idempotency.modes import Mode


class State(models.TextChoices):
    """`running`: claimed, no answer yet. `uncertain`: answered, but the outcome outside is not known."""

    RUNNING = "running", "running"
    UNCERTAIN = "uncertain", "uncertain"
    FINISHED = "finished", "finished"


class LedgerEntry(models.Model):
    """One key of one caller on one route, and the answer that its first execution gave.

    The unique constraint on (scope, key) alone decides which of two twins executed; everything else in this
    package only makes that decision cheaper or tells it.
    """

    scope = models.CharField(max_length=512)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(help_text="HMAC-SHA-256 of the request, 32 bytes")
    mode = models.CharField(max_length=8, choices=[(mode.value, mode.value) for mode in Mode])
    state = models.CharField(max_length=10, choices=State)
    owner = models.CharField(max_length=128, help_text="process that ran it last")
    request_id = models.CharField(max_length=64, blank=True)
    fence = models.BigIntegerField(default=1, help_text="grows with every execution of a phased entry")
    lease_until = models.DateTimeField(null=True, help_text="phased: nobody else executes before this time")
    response_status = models.SmallIntegerField(null=True)
    response_headers = models.JSONField(default=dict)
    response_body = models.BinaryField(null=True, help_text="null: too large to keep, or purged")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(fields=["scope", "key"], name="ledger_one_entry_per_scope_and_key"),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in State]), name="ledger_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(mode__in=[mode.value for mode in Mode]), name="ledger_mode_is_known"
            ),
            models.CheckConstraint(
                condition=Q(key__regex=r"^[\x21-\x7e]{1,255}$"), name="ledger_key_is_visible_ascii"
            ),
            models.CheckConstraint(condition=~Q(scope=""), name="ledger_scope_is_not_empty"),
            # an answer exists exactly when the entry is finished: nobody can replay half an execution
            models.CheckConstraint(
                condition=Q(state="finished", response_status__isnull=False, finished_at__isnull=False)
                | (~Q(state="finished") & Q(response_status__isnull=True, finished_at__isnull=True)),
                name="ledger_finished_has_an_answer",
            ),
            # 5xx is never stored: it could never succeed afterwards
            models.CheckConstraint(
                condition=Q(response_status__isnull=True) | Q(response_status__gte=200, response_status__lt=500),
                name="ledger_answer_is_storable",
            ),
            # an atomic entry is running only inside its own transaction; a phased one always under a lease
            models.CheckConstraint(
                condition=~Q(state="running", mode="phased") | Q(lease_until__isnull=False),
                name="ledger_phased_run_has_a_lease",
            ),
            models.CheckConstraint(condition=Q(fence__gte=1), name="ledger_fence_starts_at_one"),
        ]
        indexes = [
            models.Index(fields=["-created_at"], name="ledger_by_time"),
            # what a person or a timer has to look at; small, because finished entries are not in it
            models.Index(fields=["state", "created_at"], name="ledger_open", condition=~Q(state="finished")),
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.scope})"
