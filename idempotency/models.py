"""Tables, written by `ledger`, `inbox`, `webhooks` and `maintenance` only."""

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import CheckConstraint, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from idempotency.modes import Mode
from idempotency.postgres.guards import Guard, changed, no_step
from idempotency.postgres.indexes import BlockRangeIndex

if apps.get_containing_app_config(__name__) is None:  # Django would speak of an app_label
    raise ImproperlyConfigured("Add 'idempotency' to INSTALLED_APPS, then run `manage.py migrate idempotency`.")


class State(models.TextChoices):
    """State of an entry. `running`: no answer yet; `uncertain`: no known outcome outside."""

    RUNNING = "running", _("running")
    UNCERTAIN = "uncertain", _("uncertain")
    FINISHED = "finished", _("finished")


# bounds and not their negation: every node of a CHECK is paid for by each insert
_NAMED = Q(key__gt="", scope__gt="", fence__gte=1)
# an atomic entry is running only inside its own transaction; a phased one always under a lease
_LEASED = Q(mode="atomic") | Q(mode="phased") & (
    Q(lease_until__isnull=False) | Q(finished_at__isnull=False) | Q(state="uncertain")
)
# an answer exists exactly when the entry is finished: half an execution is never replayed. A 5xx is never stored:
# it could never succeed afterwards
_ANSWERED = (
    Q(finished_at__isnull=False, response_status__gte=200, response_status__isnull=False, response_status__lt=500)
    & Q(state="finished")
    & (Q(purged_at__isnull=True) | Q(response_body__isnull=True))
)
_OPEN = Q(finished_at__isnull=True, response_status__isnull=True, purged_at__isnull=True) & (
    Q(state="running") | Q(state="uncertain")
)
MODES = [(Mode.ATOMIC.value, _("atomic")), (Mode.PHASED.value, _("phased"))]


class LedgerEntry(models.Model):
    """Key of one caller on one route, and the answer of its first execution.

    The unique constraint on (key, scope) alone decides which of two duplicates executed; everything else in this
    package makes that decision cheaper or reports it.
    """

    scope = models.CharField(max_length=512)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(help_text="HMAC-SHA-256 of the request, 32 bytes")
    mode = models.CharField(max_length=8, choices=MODES)
    state = models.CharField(max_length=10, choices=State)
    owner = models.CharField(max_length=128, help_text="process that ran it last")
    request_id = models.CharField(max_length=64, blank=True)
    fence = models.BigIntegerField(default=1, help_text="grows with every execution of a phased entry")
    lease_until = models.DateTimeField(null=True, help_text="phased: nobody else executes before this time")
    response_status = models.SmallIntegerField(null=True)
    response_headers = models.JSONField(default=dict)
    response_body = models.BinaryField(null=True, help_text="null: too large to keep, or purged")
    body_key_id = models.CharField(max_length=64, blank=True, db_default="", help_text="empty: not encrypted")
    purged_at = models.DateTimeField(null=True, help_text="when the bytes of the answer were removed")
    subject = models.CharField(max_length=96, blank=True, db_default="", help_text="what it was about: kind:id")
    handler = models.CharField(max_length=96, blank=True, db_default="", help_text="name of its `Phases`, if any")
    recovery_point = models.CharField(max_length=64, blank=True, db_default="", help_text="where it resumes")
    recovery_data = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "ledger entries"
        permissions = [("close_ledgerentry", "Can resolve or abandon an entry whose outcome is unknown")]
        constraints = [
            # key first, so that an operator finds it without its scope; a second index would slow each insert
            models.UniqueConstraint(fields=["key", "scope"], name="ledger_one_entry_per_scope_and_key"),
            # one CHECK for every promise about a row: PostgreSQL reads and plans each again at every insert
            CheckConstraint(condition=_NAMED & _LEASED & (_ANSWERED | _OPEN), name="ledger_entry_is_whole"),
        ]
        indexes = [
            # a request pays for every index it writes: this one costs next to nothing, for rows come in its order
            BlockRangeIndex(fields=["created_at"], name="ledger_by_time"),
            # what the reaper has still to purge; tombstones are not in it
            models.Index(fields=["finished_at"], name="ledger_bodies", condition=Q(response_body__isnull=False)),
            models.Index(fields=["subject"], name="ledger_by_subject", condition=~Q(subject="")),
            # what a person or a timer has to look at; small, because finished entries are not in it
            models.Index(fields=["state", "created_at"], name="ledger_open", condition=~Q(state="finished")),
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.scope})"


class Outcome(models.TextChoices):
    """Outcome of one run of a phased entry."""

    RUNNING = "running", _("running")
    FINISHED = "finished", _("finished")
    UNCERTAIN = "uncertain", _("outcome unknown")
    FAILED = "failed", _("failed")
    LOST = "lost", _("lost its lease")
    RESOLVED = "resolved", _("resolved by an operator")
    ABANDONED = "abandoned", _("abandoned by an operator")


class LedgerAttempt(models.Model):
    """Run of a phased entry, or an operator's decision about it: who, when, which outcome.

    An atomic entry has none: its row exists only if its one run committed.
    """

    entry = models.ForeignKey(LedgerEntry, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    fence = models.BigIntegerField()
    owner = models.CharField(max_length=160, help_text="process, or operator")
    request_id = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.RUNNING)
    note = models.TextField(blank=True, db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["entry", "fence"], name="ledger_attempt_one_per_fence"),
            CheckConstraint(condition=Q(outcome__in=Outcome.values), name="ledger_attempt_outcome_is_known"),
            CheckConstraint(
                condition=Q(outcome="running", ended_at__isnull=True)
                | ~Q(outcome="running") & Q(ended_at__isnull=False),
                name="ledger_attempt_ended_has_a_time",
            ),
            CheckConstraint(
                condition=~Q(outcome__in=["resolved", "abandoned"]) | ~Q(note=""),
                name="ledger_attempt_by_hand_has_a_note",
            ),
        ]


class ArrivalOutcome(models.TextChoices):
    """Outcome of one call under a key, as the metrics name it."""

    EXECUTED = "executed", _("done")
    REFUSED = "refused", _("refused, and so is every copy")
    NOT_STORED = "not_stored", _("not accepted; the key may be used again")
    FAILED = "failed", _("failed; a retry may succeed")
    UNCERTAIN = "uncertain", _("outcome unknown")
    REPLAYED = "replayed", _("got the first answer again")
    IN_PROGRESS = "in_progress", _("409: the first call was still running")
    REUSED = "reused", _("422: the key belongs to another content")
    EXPIRED = "expired", _("410: done before, the answer is gone")


class Arrival(models.Model):
    """Line of the request log: one call under a key."""

    digest = models.CharField(max_length=64, help_text="names the key, as in log lines")
    line_id = models.CharField(max_length=40, help_text="of the stream in Redis")
    at = models.DateTimeField(help_text="when it was answered")
    outcome = models.CharField(max_length=12, choices=ArrivalOutcome)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.CharField(max_length=45, blank=True, help_text="of the caller, as the server saw it")
    outline = models.JSONField(default=dict, help_text="digest of each part of its content; empty for a copy")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["digest", "line_id"], name="arrival_one_row_per_call"),
            Guard(name="arrival_stays", on="UPDATE", message="a line of the request log is not changed"),
        ]
        # no request pays for it. A block range's would keep its oldest time when the rows are dropped
        indexes = [models.Index(fields=["at"], name="arrival_by_time")]


class ConsumedMessage(models.Model):
    """Message that a consumer has applied: inserted in the same transaction as its effect."""

    consumer = models.CharField(max_length=96)
    message_id = models.CharField(max_length=255)
    consumed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["consumer", "message_id"], name="inbox_one_row_per_message"),
            CheckConstraint(condition=~Q(consumer="") & ~Q(message_id=""), name="inbox_message_is_named"),
        ]
        indexes = [BlockRangeIndex(fields=["consumed_at"], name="inbox_by_time")]

    def __str__(self) -> str:
        return f"{self.message_id} ({self.consumer})"


class EventStatus(models.TextChoices):
    """State of a webhook event: `held` waits for its predecessor, `quarantined` for a person."""

    STORED = "stored", _("stored")
    HELD = "held", _("held")
    FAILED = "failed", _("failed")
    QUARANTINED = "quarantined", _("quarantined")
    APPLIED = "applied", _("applied")


_WAITING = ["stored", "held", "failed"]
_ENDS = ["failed", "quarantined", "applied"]
_STEPS = {"stored": ["held", *_ENDS], "held": _ENDS, "failed": ["held", *_ENDS], "quarantined": ["applied"]}
_OUT_OF_ORDER = (
    "NEW.status = 'applied' AND OLD.status <> 'applied' AND NEW.sequence > 1 AND NEW.note = '' AND NOT EXISTS ("
    "SELECT FROM idempotency_webhookevent before WHERE before.sender = NEW.sender AND "
    "before.entity = NEW.entity AND before.sequence = NEW.sequence - 1 AND before.status = 'applied')"
)
_REQUEST = ("sender", "event_id", "entity", "sequence", "received_at")


class WebhookEvent(models.Model):
    """Genuine webhook request and what became of it; copies by the sender's id are one row.

    `applied` is written in the transaction of the handler's own writes.
    """

    sender = models.CharField(max_length=96)
    event_id = models.CharField(max_length=255, help_text="the sender's")
    entity = models.CharField(max_length=255, db_default="", help_text="with a sequence: what is in order")
    sequence = models.BigIntegerField(null=True, help_text="from 1; null: in no order")
    headers = models.JSONField(default=dict)
    body = models.BinaryField(null=True, help_text="null: removed after it was applied")
    status = models.CharField(max_length=12, choices=EventStatus, db_default=EventStatus.STORED)
    attempts = models.IntegerField(db_default=0, help_text="runs of the handler that have ended")
    error = models.TextField(db_default="", help_text="of the last run that failed")
    note = models.TextField(db_default="", help_text="operator and reason, if one applied it by hand")
    received_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now(), help_text="no worker applies it before this time")
    applied_at = models.DateTimeField(null=True)

    class Meta:
        permissions = [("replay_webhookevent", "Can apply a webhook event that failed or is held")]
        constraints = [
            models.UniqueConstraint(fields=["sender", "event_id"], name="webhook_one_row_per_event"),
            CheckConstraint(
                condition=Q(sender__gt="", event_id__gt="")
                & (Q(sequence__isnull=True) | Q(sequence__gte=1, entity__gt=""))
                & (
                    Q(status="applied", applied_at__isnull=False)
                    | Q(status__in=[*_WAITING, "quarantined"], applied_at__isnull=True, body__isnull=False)
                )
                & (~Q(status="held") | Q(sequence__isnull=False))
                & (~Q(status__in=["failed", "quarantined"]) | Q(error__gt="")),
                name="webhook_event_is_whole",
            ),
            Guard(name="webhook_event_step", on="UPDATE", when=no_step(_STEPS), message="no step of an event"),
            Guard(
                name="webhook_event_request",
                on="UPDATE",
                when=f"{changed(*_REQUEST)} OR NEW.body <> OLD.body",
                message="what arrived is not changed",
            ),
            Guard(
                name="webhook_event_waits",
                on="DELETE",
                when="OLD.status NOT IN ('applied', 'quarantined')",
                message="it is not applied yet",
            ),
            Guard(
                name="webhook_event_order",
                on="UPDATE",
                when=_OUT_OF_ORDER,
                message="its predecessor is not applied",
                at_commit=True,
            ),
        ]
        indexes = [
            models.Index(
                fields=["sender", "entity", "sequence"],
                name="webhook_by_entity",
                condition=Q(sequence__isnull=False),
            ),
            models.Index(fields=["due_at"], name="webhook_due", condition=Q(status__in=_WAITING)),
            models.Index(
                fields=["applied_at"],
                name="webhook_bodies",
                condition=Q(applied_at__isnull=False, body__isnull=False),
            ),
            models.Index(fields=["applied_at"], name="webhook_old", condition=Q(status="applied", attempts__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} ({self.sender})"


class LedgerEpoch(models.Model):
    """Single row whose value is part of names in Redis (`ledger.claiming`); the last reaping."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    value = models.CharField(max_length=32)
    since = models.DateTimeField(db_default=Now())
    reaped_at = models.DateTimeField(
        db_default=Now(), help_text="end of the last reaping; at first, of the migration"
    )

    class Meta:
        constraints = [
            CheckConstraint(condition=Q(id=1), name="ledger_epoch_is_one"),
            CheckConstraint(condition=~Q(value=""), name="ledger_epoch_is_not_empty"),
        ]
