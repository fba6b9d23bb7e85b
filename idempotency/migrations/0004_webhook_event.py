"""Events of webhooks. The guards stand apart: undone, they take their functions along, as a table does not."""

from django.db import migrations, models
from django.db.models.functions import Now

from idempotency.postgres.guards import Guard


class Migration(migrations.Migration):
    dependencies = [
        ("idempotency", "0003_last_reaping"),
    ]

    operations = [
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
                    models.DateTimeField(
                        db_default=Now(),
                        help_text="no worker applies it before this time",
                    ),
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
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                message="no step of an event",
                name="webhook_event_step",
                on="UPDATE",
                when="NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (('stored', 'applied'), ('stored', 'failed'), ('stored', 'held'), ('stored', 'quarantined'), ('held', 'applied'), ('held', 'failed'), ('held', 'quarantined'), ('failed', 'applied'), ('failed', 'failed'), ('failed', 'held'), ('failed', 'quarantined'), ('quarantined', 'applied'))",
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
    ]
