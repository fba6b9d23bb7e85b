import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import idempotency.postgres.indexes


class Migration(migrations.Migration):
    dependencies = [
        ("idempotency", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ConsumedMessage",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("consumer", models.CharField(max_length=96)),
                ("message_id", models.CharField(max_length=255)),
                ("consumed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="LedgerAttempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("fence", models.BigIntegerField()),
                ("owner", models.CharField(help_text="process, or operator", max_length=160)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
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
        ),
        migrations.CreateModel(
            name="LedgerTally",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("hour", models.DateTimeField()),
                ("what", models.CharField(max_length=24)),
                ("count", models.BigIntegerField()),
            ],
        ),
        migrations.AlterModelOptions(
            name="ledgerentry",
            options={
                "permissions": [("close_ledgerentry", "Can resolve or abandon an entry whose outcome is unknown")],
                "verbose_name_plural": "ledger entries",
            },
        ),
        migrations.RemoveConstraint(
            model_name="ledgerentry",
            name="ledger_key_is_visible_ascii",
        ),
        migrations.RemoveIndex(
            model_name="ledgerentry",
            name="ledger_by_time",
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="body_key_id",
            field=models.CharField(blank=True, db_default="", help_text="empty: not encrypted", max_length=64),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="handler",
            field=models.CharField(
                blank=True, db_default="", help_text="name of its `Phases`, if any", max_length=96
            ),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="purged_at",
            field=models.DateTimeField(help_text="when the bytes of the answer were removed", null=True),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="recovery_data",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="recovery_point",
            field=models.CharField(blank=True, db_default="", help_text="where it resumes", max_length=64),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="subject",
            field=models.CharField(
                blank=True, db_default="", help_text="what it was about: kind:id", max_length=96
            ),
        ),
        migrations.AddIndex(
            model_name="ledgerentry",
            index=idempotency.postgres.indexes.BlockRangeIndex(fields=["created_at"], name="ledger_by_time"),
        ),
        migrations.AddIndex(
            model_name="ledgerentry",
            index=models.Index(
                condition=models.Q(("response_body__isnull", False)), fields=["finished_at"], name="ledger_bodies"
            ),
        ),
        migrations.AddIndex(
            model_name="ledgerentry",
            index=models.Index(
                condition=models.Q(("subject", ""), _negated=True), fields=["subject"], name="ledger_by_subject"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("key", ""), _negated=True), name="ledger_key_is_not_empty"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("purged_at__isnull", True),
                    models.Q(("response_body__isnull", True), ("state", "finished")),
                    _connector="OR",
                ),
                name="ledger_purged_has_no_body",
            ),
        ),
        migrations.AddIndex(
            model_name="consumedmessage",
            index=idempotency.postgres.indexes.BlockRangeIndex(fields=["consumed_at"], name="inbox_by_time"),
        ),
        migrations.AddConstraint(
            model_name="consumedmessage",
            constraint=models.UniqueConstraint(
                fields=("consumer", "message_id"), name="inbox_one_row_per_message"
            ),
        ),
        migrations.AddConstraint(
            model_name="consumedmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("consumer", ""), _negated=True), models.Q(("message_id", ""), _negated=True)
                ),
                name="inbox_message_is_named",
            ),
        ),
        migrations.AddField(
            model_name="ledgerattempt",
            name="entry",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="attempts", to="idempotency.ledgerentry"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgertally",
            constraint=models.UniqueConstraint(fields=("hour", "what"), name="ledger_tally_one_row_an_hour"),
        ),
        migrations.AddConstraint(
            model_name="ledgertally",
            constraint=models.CheckConstraint(
                condition=models.Q(("count__gte", 1)), name="ledger_tally_counts_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerattempt",
            constraint=models.UniqueConstraint(fields=("entry", "fence"), name="ledger_attempt_one_per_fence"),
        ),
        migrations.AddConstraint(
            model_name="ledgerattempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "outcome__in",
                        ["running", "finished", "uncertain", "failed", "lost", "resolved", "abandoned"],
                    )
                ),
                name="ledger_attempt_outcome_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerattempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("outcome", "running")),
                    models.Q(models.Q(("outcome", "running"), _negated=True), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="ledger_attempt_ended_has_a_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerattempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("outcome__in", ["resolved", "abandoned"]), _negated=True),
                    models.Q(("note", ""), _negated=True),
                    _connector="OR",
                ),
                name="ledger_attempt_by_hand_has_a_note",
            ),
        ),
    ]
