"""One CHECK for an entry, the time of the last reaping, webhook events and the request log.

The tables of 2026-11-24 are brought forward in one transaction. Turned away by a session that holds the ledger for
longer than `LOCK_WAIT`, it is run again.
"""

from typing import Any

from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
FORMER = (
    "ledger_state_is_known",
    "ledger_mode_is_known",
    "ledger_key_is_not_empty",
    "ledger_scope_is_not_empty",
    "ledger_finished_has_an_answer",
    "ledger_answer_is_storable",
    "ledger_phased_run_has_a_lease",
    "ledger_fence_starts_at_one",
    "ledger_purged_has_no_body",
)
NAMED = Q(key__gt="", scope__gt="", fence__gte=1)
LEASED = Q(mode="atomic") | Q(mode="phased") & (
    Q(lease_until__isnull=False) | Q(finished_at__isnull=False) | Q(state="uncertain")
)
ANSWERED = Q(
    state="finished",
    finished_at__isnull=False,
    response_status__isnull=False,
    response_status__gte=200,
    response_status__lt=500,
) & (Q(purged_at__isnull=True) | Q(response_body__isnull=True))
OPEN = Q(finished_at__isnull=True, response_status__isnull=True, purged_at__isnull=True) & (
    Q(state="running") | Q(state="uncertain")
)
WHOLE = models.CheckConstraint(condition=NAMED & LEASED & (ANSWERED | OPEN), name="ledger_entry_is_whole")


def bound_the_wait(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":  # another database may lie beside the ledger's own
        # a site's own limit of a statement is for requests; a CHECK reads the whole table
        schema_editor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'; SET LOCAL statement_timeout = 0")


class Migration(migrations.Migration):
    replaces = [
        ("idempotency", "0002_lean_entry"),
        ("idempotency", "0003_last_reaping"),
        ("idempotency", "0004_webhook_event"),
        ("idempotency", "0005_request_log"),
        ("idempotency", "0006_steps_in_one_constant"),
        ("idempotency", "0007_reaped_events"),
    ]

    dependencies = [("idempotency", "0001_squashed_0006_no_tallies")]

    operations = [
        migrations.RunPython(bound_the_wait, migrations.RunPython.noop),
        # PostgreSQL reads and plans each CHECK again at every insert
        migrations.AddConstraint(model_name="ledgerentry", constraint=WHOLE),
        *(migrations.RemoveConstraint(model_name="ledgerentry", name=name) for name in FORMER),
        migrations.AddField(
            model_name="ledgerepoch",
            name="reaped_at",
            field=models.DateTimeField(
                db_default=Now(), help_text="end of the last reaping; at first, of the migration"
            ),
        ),
        migrations.CreateModel(
            name="WebhookEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("sender", models.CharField(max_length=96)),
                ("event_id", models.CharField(help_text="the sender's", max_length=255)),
                (
                    "entity",
                    models.CharField(db_default="", help_text="with a sequence: what is in order", max_length=255),
                ),
                ("sequence", models.BigIntegerField(help_text="from 1; null: in no order", null=True)),
                ("headers", models.JSONField(default=dict)),
                ("body", models.BinaryField(help_text="null: removed after it was applied", null=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("stored", "stored"),
                            ("held", "held"),
                            ("failed", "failed"),
                            ("quarantined", "quarantined"),
                            ("applied", "applied"),
                        ],
                        db_default="stored",
                        max_length=12,
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0, help_text="runs of the handler that have ended")),
                ("error", models.TextField(db_default="", help_text="of the last run that failed")),
                (
                    "note",
                    models.TextField(db_default="", help_text="operator and reason, if one applied it by hand"),
                ),
                ("received_at", models.DateTimeField(db_default=Now())),
                (
                    "due_at",
                    models.DateTimeField(db_default=Now(), help_text="no worker applies it before this time"),
                ),
                ("applied_at", models.DateTimeField(null=True)),
            ],
            options={
                "permissions": [("replay_webhookevent", "Can apply a webhook event that failed or is held")],
                "indexes": [
                    models.Index(
                        condition=models.Q(("sequence__isnull", False)),
                        fields=["sender", "entity", "sequence"],
                        name="webhook_by_entity",
                    ),
                    models.Index(
                        condition=models.Q(("status__in", ["stored", "held", "failed"])),
                        fields=["due_at"],
                        name="webhook_due",
                    ),
                    models.Index(
                        condition=models.Q(("applied_at__isnull", False), ("body__isnull", False)),
                        fields=["applied_at"],
                        name="webhook_bodies",
                    ),
                    models.Index(
                        condition=Q(status="applied", attempts__gt=0),
                        fields=["applied_at"],
                        name="webhook_old",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("sender", "event_id"), name="webhook_one_row_per_event"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("event_id__gt", ""),
                            ("sender__gt", ""),
                            models.Q(
                                ("sequence__isnull", True),
                                models.Q(("entity__gt", ""), ("sequence__gte", 1)),
                                _connector="OR",
                            ),
                            models.Q(
                                models.Q(("applied_at__isnull", False), ("status", "applied")),
                                models.Q(
                                    ("applied_at__isnull", True),
                                    ("body__isnull", False),
                                    ("status__in", ["stored", "held", "failed", "quarantined"]),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                models.Q(("status", "held"), _negated=True),
                                ("sequence__isnull", False),
                                _connector="OR",
                            ),
                            models.Q(
                                models.Q(("status__in", ["failed", "quarantined"]), _negated=True),
                                ("error__gt", ""),
                                _connector="OR",
                            ),
                        ),
                        name="webhook_event_is_whole",
                    ),
                ],
            },
        ),
        # beside the table: undone, they take their functions along
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                message="no step of an event",
                name="webhook_event_step",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{stored applied,stored failed,stored held,stored quarantined,held applied,held failed,held quarantined,failed applied,failed failed,failed held,failed quarantined,quarantined applied}')",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                message="what arrived is not changed",
                name="webhook_event_request",
                on="UPDATE",
                when="NEW.sender IS DISTINCT FROM OLD.sender OR NEW.event_id IS DISTINCT FROM OLD.event_id OR NEW.entity IS DISTINCT FROM OLD.entity OR NEW.sequence IS DISTINCT FROM OLD.sequence OR NEW.received_at IS DISTINCT FROM OLD.received_at OR NEW.body <> OLD.body",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                message="it is not applied yet",
                name="webhook_event_waits",
                on="DELETE",
                when="OLD.status NOT IN ('applied', 'quarantined')",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                at_commit=True,
                message="its predecessor is not applied",
                name="webhook_event_order",
                on="UPDATE",
                when="NEW.status = 'applied' AND OLD.status <> 'applied' AND NEW.sequence > 1 AND NEW.note = '' AND NOT EXISTS (SELECT FROM idempotency_webhookevent before WHERE before.sender = NEW.sender AND before.entity = NEW.entity AND before.sequence = NEW.sequence - 1 AND before.status = 'applied')",
            ),
        ),
        migrations.CreateModel(
            name="Arrival",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("digest", models.CharField(help_text="names the key, as in log lines", max_length=64)),
                ("line_id", models.CharField(help_text="of the stream in Redis", max_length=40)),
                ("at", models.DateTimeField(help_text="when it was answered")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("executed", "done"),
                            ("refused", "refused, and so is every copy"),
                            ("not_stored", "not accepted; the key may be used again"),
                            ("failed", "failed; a retry may succeed"),
                            ("uncertain", "outcome unknown"),
                            ("replayed", "got the first answer again"),
                            ("in_progress", "409: the first call was still running"),
                            ("reused", "422: the key belongs to another content"),
                            ("expired", "410: done before, the answer is gone"),
                        ],
                        max_length=12,
                    ),
                ),
                ("request_id", models.CharField(blank=True, max_length=64)),
                (
                    "address",
                    models.CharField(blank=True, help_text="of the caller, as the server saw it", max_length=45),
                ),
                (
                    "outline",
                    models.JSONField(
                        default=dict, help_text="digest of each part of its content; empty for a copy"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="arrival_by_time")],
                "constraints": [
                    models.UniqueConstraint(fields=("digest", "line_id"), name="arrival_one_row_per_call")
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="arrival",
            constraint=Guard(
                name="arrival_stays", on="UPDATE", message="a line of the request log is not changed"
            ),
        ),
    ]
