from uuid import uuid4

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

from idempotency.postgres.indexes import BlockRangeIndex


def number():
    return "id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def begin(apps, schema_editor):
    apps.get_model("idempotency", "LedgerEpoch").objects.using(schema_editor.connection.alias).create(
        id=1, value=uuid4().hex
    )


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("idempotency", "0001_initial"),
        ("idempotency", "0002_history_tombstones_recovery_inbox"),
        ("idempotency", "0003_unique_key_first"),
        ("idempotency", "0004_one_index_each"),
        ("idempotency", "0005_epoch"),
        ("idempotency", "0006_no_tallies"),
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                number(),
                ("scope", models.CharField(max_length=512)),
                ("key", models.CharField(max_length=255)),
                ("fingerprint", models.BinaryField(help_text="HMAC-SHA-256 of the request, 32 bytes")),
                ("mode", models.CharField(choices=[("atomic", "atomic"), ("phased", "phased")], max_length=8)),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "running"), ("uncertain", "uncertain"), ("finished", "finished")],
                        max_length=10,
                    ),
                ),
                ("owner", models.CharField(help_text="process that ran it last", max_length=128)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                (
                    "fence",
                    models.BigIntegerField(default=1, help_text="grows with every execution of a phased entry"),
                ),
                (
                    "lease_until",
                    models.DateTimeField(help_text="phased: nobody else executes before this time", null=True),
                ),
                ("response_status", models.SmallIntegerField(null=True)),
                ("response_headers", models.JSONField(default=dict)),
                ("response_body", models.BinaryField(help_text="null: too large to keep, or purged", null=True)),
                (
                    "body_key_id",
                    models.CharField(blank=True, db_default="", help_text="empty: not encrypted", max_length=64),
                ),
                (
                    "purged_at",
                    models.DateTimeField(help_text="when the bytes of the answer were removed", null=True),
                ),
                (
                    "subject",
                    models.CharField(
                        blank=True, db_default="", help_text="what it was about: kind:id", max_length=96
                    ),
                ),
                (
                    "handler",
                    models.CharField(
                        blank=True, db_default="", help_text="name of its `Phases`, if any", max_length=96
                    ),
                ),
                (
                    "recovery_point",
                    models.CharField(blank=True, db_default="", help_text="where it resumes", max_length=64),
                ),
                (
                    "recovery_data",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name_plural": "ledger entries",
                "permissions": [("close_ledgerentry", "Can resolve or abandon an entry whose outcome is unknown")],
                "constraints": [
                    models.UniqueConstraint(fields=["key", "scope"], name="ledger_one_entry_per_scope_and_key"),
                    models.CheckConstraint(
                        condition=Q(state__in=["running", "uncertain", "finished"]), name="ledger_state_is_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(mode__in=["atomic", "phased"]), name="ledger_mode_is_known"
                    ),
                    models.CheckConstraint(condition=~Q(key=""), name="ledger_key_is_not_empty"),
                    models.CheckConstraint(condition=~Q(scope=""), name="ledger_scope_is_not_empty"),
                    models.CheckConstraint(
                        condition=Q(state="finished", response_status__isnull=False, finished_at__isnull=False)
                        | (~Q(state="finished") & Q(response_status__isnull=True, finished_at__isnull=True)),
                        name="ledger_finished_has_an_answer",
                    ),
                    models.CheckConstraint(
                        condition=Q(response_status__isnull=True)
                        | Q(response_status__gte=200, response_status__lt=500),
                        name="ledger_answer_is_storable",
                    ),
                    models.CheckConstraint(
                        condition=~Q(state="running", mode="phased") | Q(lease_until__isnull=False),
                        name="ledger_phased_run_has_a_lease",
                    ),
                    models.CheckConstraint(condition=Q(fence__gte=1), name="ledger_fence_starts_at_one"),
                    models.CheckConstraint(
                        condition=Q(purged_at__isnull=True) | Q(response_body__isnull=True, state="finished"),
                        name="ledger_purged_has_no_body",
                    ),
                ],
                "indexes": [
                    BlockRangeIndex(fields=["created_at"], name="ledger_by_time"),
                    models.Index(
                        fields=["finished_at"], name="ledger_bodies", condition=Q(response_body__isnull=False)
                    ),
                    models.Index(fields=["subject"], name="ledger_by_subject", condition=~Q(subject="")),
                    models.Index(
                        fields=["state", "created_at"], name="ledger_open", condition=~Q(state="finished")
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerAttempt",
            fields=[
                number(),
                (
                    "entry",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="idempotency.ledgerentry",
                    ),
                ),
                ("fence", models.BigIntegerField()),
                ("owner", models.CharField(help_text="process, or operator", max_length=160)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("started_at", models.DateTimeField(db_default=Now())),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("finished", "finished"),
                            ("uncertain", "outcome unknown"),
                            ("failed", "failed"),
                            ("lost", "lost its lease"),
                            ("resolved", "resolved by an operator"),
                            ("abandoned", "abandoned by an operator"),
                        ],
                        default="running",
                        max_length=10,
                    ),
                ),
                ("note", models.TextField(blank=True, db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["entry", "fence"], name="ledger_attempt_one_per_fence"),
                    models.CheckConstraint(
                        condition=Q(
                            outcome__in=[
                                *("running", "finished", "uncertain", "failed"),
                                *("lost", "resolved", "abandoned"),
                            ]
                        ),
                        name="ledger_attempt_outcome_is_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(outcome="running", ended_at__isnull=True)
                        | (~Q(outcome="running") & Q(ended_at__isnull=False)),
                        name="ledger_attempt_ended_has_a_time",
                    ),
                    models.CheckConstraint(
                        condition=~Q(outcome__in=["resolved", "abandoned"]) | ~Q(note=""),
                        name="ledger_attempt_by_hand_has_a_note",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConsumedMessage",
            fields=[
                number(),
                ("consumer", models.CharField(max_length=96)),
                ("message_id", models.CharField(max_length=255)),
                ("consumed_at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["consumer", "message_id"], name="inbox_one_row_per_message"),
                    models.CheckConstraint(
                        condition=~Q(consumer="") & ~Q(message_id=""), name="inbox_message_is_named"
                    ),
                ],
                "indexes": [BlockRangeIndex(fields=["consumed_at"], name="inbox_by_time")],
            },
        ),
        migrations.CreateModel(
            name="LedgerEpoch",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("value", models.CharField(max_length=32)),
                ("since", models.DateTimeField(db_default=Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=Q(id=1), name="ledger_epoch_is_one"),
                    models.CheckConstraint(condition=~Q(value=""), name="ledger_epoch_is_not_empty"),
                ],
            },
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
