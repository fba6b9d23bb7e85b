"""Deliveries of what is decided to other programs. A new table: the version before neither reads nor writes it."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import idempotency.ids
import idempotency.postgres.guards


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0003_order_key"),
    ]

    operations = [
        # its foreign key locks the payments; requests queue up behind a lock that is waited for
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=idempotency.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("endpoint", models.CharField(max_length=64)),
                ("type", models.CharField(max_length=32)),
                ("sequence", models.PositiveIntegerField()),
                ("data", models.JSONField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("sending", "is being sent"),
                            ("delivered", "delivered"),
                            ("failed", "given up"),
                        ],
                        default="waiting",
                        max_length=9,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("log", models.JSONField(default=list, help_text="of each attempt: when, and the answer")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("due_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ends_at", models.DateTimeField(help_text="no attempt begins later")),
                ("delivered_at", models.DateTimeField(null=True)),
                (
                    "payment",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="deliveries",
                        to="payments.payment",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ("-id",),
                "permissions": [("replay_delivery", "Can send a delivery again")],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["waiting", "sending"])),
                        fields=["endpoint", "due_at"],
                        name="delivery_due",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("payment", "endpoint", "sequence"), name="delivery_in_order"),
                    models.UniqueConstraint(
                        condition=models.Q(("status", "sending")),
                        fields=("payment", "endpoint"),
                        name="delivery_one_at_a_time",
                    ),
                ],
            },
        ),
        # by itself: undone, it takes its function along
        migrations.AddConstraint(
            model_name="delivery",
            constraint=idempotency.postgres.guards.Guard(
                message="a delivery says the same at each attempt",
                name="delivery_says_one_thing",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.endpoint IS DISTINCT FROM OLD.endpoint OR NEW.type IS DISTINCT FROM OLD.type OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.sequence IS DISTINCT FROM OLD.sequence OR NEW.data IS DISTINCT FROM OLD.data OR NEW.created_at IS DISTINCT FROM OLD.created_at",
            ),
        ),
    ]
