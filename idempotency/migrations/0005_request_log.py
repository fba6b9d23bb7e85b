"""Request log: each call under a key, and what a refused one changed."""

from django.db import migrations, models

from idempotency.postgres.guards import Guard


class Migration(migrations.Migration):
    dependencies = [
        ("idempotency", "0004_webhook_event"),
    ]

    operations = [
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
