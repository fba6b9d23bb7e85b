"""Guards, orders with any primary key, accounts, disputes, deliveries, provider calls.

In one transaction, so no row is unguarded meanwhile, and in the order in which settlement locks. Turned away by a
session that holds a table for longer than `LOCK_WAIT`, it is run again.
"""

from datetime import timedelta

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from idempotency.ids import new_id
from idempotency.postgres.guards import Guard
from idempotency.postgres.indexes import BlockRangeIndex

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
# functions of triggers that were written by hand
FORMER = (
    "payments_refuse",
    "payments_refuse_beginning",
    "payments_payment_guard",
    "payments_attempt_guard",
    "payments_refund_guard",
    "payments_observation_guard",
    "payments_journal_adds_up",
)
FACTS = [(word, word) for word in ("paid", "refunded", "closed", "disputed", "taken", "returned")]
ANOMALIES = [
    ("unknown_trade", "a fact about a number that is not ours"),
    ("amount_mismatch", "paid in another amount or currency"),
    ("merchant_mismatch", "paid to another merchant"),
    ("paid_after_close", "paid after the order was closed"),
    ("paid_twice", "paid twice"),
    ("content_changed", "reported again with other content"),
    ("refund_exceeds_paid", "refunded more than was paid"),
    ("refund_failed", "a refund was refused"),
    ("notification_failed", "a notification could not be processed"),
    ("disputed", "disputed, or taken back by the provider"),
]


class Migration(migrations.Migration):
    replaces = [
        ("payments", "0002_guards"),
        ("payments", "0003_order_key"),
        ("payments", "0004_delivery"),
        ("payments", "0005_provider_call"),
        ("payments", "0006_account"),
        ("payments", "0007_open_kinds"),
        ("payments", "0008_captures"),
        ("payments", "0009_order_model"),
        ("payments", "0010_disputes"),
        ("payments", "0011_steps_in_one_constant"),
        ("payments", "0012_disputed_minor"),
        ("payments", "0013_count_disputes"),
        ("payments", "0014_growing_tables"),
        ("payments", "0015_notification_by_time"),
    ]

    dependencies = [("payments", "0001_squashed_0016_words")]

    operations = [
        migrations.RunSQL(
            # a site's own limit of a statement is for requests; an index reads the whole table
            f"SET LOCAL lock_timeout = '{LOCK_WAIT}'; SET LOCAL statement_timeout = 0",
            migrations.RunSQL.noop,
        ),
        migrations.AddField(
            model_name="payment",
            name="order_key",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="the order's primary key as text; empty where it is `order_id`",
                max_length=255,
            ),
        ),
        migrations.AddField(
            "payment",
            "order_model",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="of which the key is, as app.model; empty for a UUID",
                max_length=255,
            ),
        ),
        migrations.AddField(
            "payment",
            "disputed_minor",
            models.BigIntegerField(
                db_default=0, default=0, help_text="taken by disputes of what was paid, and not returned"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="payment_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="what moves money does not begin as paid or over",
                name="payment_begins",
                on="INSERT",
                raises="begins_at_the_beginning",
                when="NEW.status NOT IN ('pending')",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its order, owner and amount are for good",
                name="payment_identity_is_fixed",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.order_id IS DISTINCT FROM OLD.order_id OR NEW.order_key IS DISTINCT FROM OLD.order_key OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency OR NEW.owner_id IS DISTINCT FROM OLD.owner_id",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its new status is not a step of a payment",
                name="payment_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{pending closed,pending partially_refunded,pending pending,pending refunded,pending succeeded,pending uncertain,uncertain closed,uncertain partially_refunded,uncertain pending,uncertain refunded,uncertain succeeded,uncertain uncertain,closed closed,closed partially_refunded,closed pending,closed refunded,closed succeeded,closed uncertain,succeeded partially_refunded,succeeded refunded,succeeded succeeded,partially_refunded partially_refunded,partially_refunded refunded,refunded refunded}')",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its totals only grow",
                name="payment_totals_only_grow",
                on="UPDATE",
                when="NEW.paid_minor < OLD.paid_minor OR NEW.refunded_minor < OLD.refunded_minor",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="a change needs a new version",
                name="payment_version_only_grows",
                on="UPDATE",
                when="NEW.version < OLD.version OR (NEW.version = OLD.version AND (NEW.status IS DISTINCT FROM OLD.status OR NEW.paid_minor IS DISTINCT FROM OLD.paid_minor OR NEW.refunded_minor IS DISTINCT FROM OLD.refunded_minor OR NEW.reserved_minor IS DISTINCT FROM OLD.reserved_minor))",
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="account_key",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddField("attempt", "capture_submitted_at", models.DateTimeField(null=True)),
        migrations.AlterField("attempt", "method", models.CharField(max_length=16)),
        migrations.AlterField("attempt", "next_action_type", models.CharField(blank=True, max_length=16)),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="attempt_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="what moves money does not begin as paid or over",
                name="attempt_begins",
                on="INSERT",
                raises="begins_at_the_beginning",
                when="NEW.status NOT IN ('created', 'pending')",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="what the provider has of it is for good",
                name="attempt_identity_is_fixed",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.channel IS DISTINCT FROM OLD.channel OR NEW.account_key IS DISTINCT FROM OLD.account_key OR NEW.method IS DISTINCT FROM OLD.method OR NEW.merchant IS DISTINCT FROM OLD.merchant OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="its new status is not a step of an attempt",
                name="attempt_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{created closed,created failed,created pending,created succeeded,created uncertain,pending closed,pending succeeded,uncertain closed,uncertain failed,uncertain pending,uncertain succeeded,closed succeeded,failed closed,failed succeeded}')",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="refund_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=Guard(
                message="what moves money does not begin as paid or over",
                name="refund_begins",
                on="INSERT",
                raises="begins_at_the_beginning",
                when="NEW.status NOT IN ('requested')",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=Guard(
                message="its payment and amount are for good",
                name="refund_identity_is_fixed",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.attempt_id IS DISTINCT FROM OLD.attempt_id OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.anomaly_id IS DISTINCT FROM OLD.anomaly_id",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=Guard(
                message="its new status is not a step of a refund",
                name="refund_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{requested failed,requested processing,requested succeeded,requested uncertain,processing failed,processing requested,processing succeeded,processing uncertain,uncertain failed,uncertain processing,uncertain requested,uncertain succeeded,failed succeeded}')",
            ),
        ),
        migrations.AlterField("observation", "kind", models.CharField(choices=FACTS, max_length=8)),
        migrations.AddIndex(
            "observation", BlockRangeIndex(fields=["occurred_at", "observed_at"], name="observation_by_time")
        ),
        migrations.AddConstraint(
            model_name="observation",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="observation_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="observation",
            constraint=Guard(
                error="restrict_violation",
                message="a fact stays as it was reported",
                name="observation_is_fixed",
                on="UPDATE",
                raises="money_is_append_only",
                when="NOT (NEW.credited AND NOT OLD.credited) OR to_jsonb(NEW) - 'credited' <> to_jsonb(OLD) - 'credited'",
            ),
        ),
        migrations.AlterField("anomaly", "kind", models.CharField(choices=ANOMALIES, max_length=24)),
        migrations.AddIndex(
            "anomaly", models.Index(F("resolved_at").desc(nulls_first=True), F("id"), name="anomaly_by_end")
        ),
        migrations.AddConstraint(
            model_name="anomaly",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="anomaly_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddField(
            model_name="notification",
            name="account_key",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.RemoveIndex("notification", "notification_by_time"),
        migrations.AddConstraint(
            model_name="notification",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="notification_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="journalentry",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="journal_entry_stays",
                on="UPDATE OR DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="journalentry",
            constraint=Guard(
                at_commit=True,
                message="its journal entry does not add up to zero",
                name="journal_entry_adds_up",
                on="INSERT",
                raises="journal_adds_up_to_zero",
                when="NOT EXISTS (SELECT FROM payments_journalline WHERE entry_id = NEW.id)\n    OR EXISTS (SELECT FROM payments_journalline WHERE entry_id = NEW.id\n        GROUP BY currency HAVING sum(amount_minor) <> 0)",
            ),
        ),
        migrations.AddConstraint(
            model_name="journalline",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="journal_line_stays",
                on="UPDATE OR DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="journalline",
            constraint=Guard(
                at_commit=True,
                message="its journal entry does not add up to zero",
                name="journal_line_adds_up",
                on="INSERT",
                raises="journal_adds_up_to_zero",
                when="NOT EXISTS (SELECT FROM payments_journalline WHERE entry_id = NEW.entry_id)\n    OR EXISTS (SELECT FROM payments_journalline WHERE entry_id = NEW.entry_id\n        GROUP BY currency HAVING sum(amount_minor) <> 0)",
            ),
        ),
        migrations.AddConstraint(
            model_name="billcomparison",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="bill_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AlterField(
            "difference", "moved", models.CharField(choices=FACTS, help_text="what moved", max_length=8)
        ),
        migrations.AddConstraint(
            model_name="difference",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="difference_stays",
                on="DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.AddConstraint(
            model_name="auditentry",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="audit_entry_stays",
                on="UPDATE OR DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False),
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
                ("created_at", models.DateTimeField(db_default=Now())),
                ("due_at", models.DateTimeField(db_default=Now())),
                (
                    "ends_at",
                    models.DateTimeField(
                        db_default=Now() + timedelta(days=3), help_text="no attempt begins later"
                    ),
                ),
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
                    ),
                    models.Index(
                        condition=models.Q(("status", "failed")), fields=["created_at"], name="delivery_given_up"
                    ),
                    models.Index(
                        Coalesce("delivered_at", "ends_at"),
                        condition=Q(status__in=["delivered", "failed"]) & ~Q(log=[]),
                        name="delivery_old",
                    ),
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
        # beside the tables: undone, they take their functions along
        migrations.AddConstraint(
            model_name="delivery",
            constraint=Guard(
                message="a delivery says the same at each attempt",
                name="delivery_says_one_thing",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.endpoint IS DISTINCT FROM OLD.endpoint OR NEW.type IS DISTINCT FROM OLD.type OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.sequence IS DISTINCT FROM OLD.sequence OR NEW.data IS DISTINCT FROM OLD.data OR NEW.created_at IS DISTINCT FROM OLD.created_at",
            ),
        ),
        migrations.CreateModel(
            name="ProviderCall",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("method", models.CharField(help_text="of `payments.providers.base.Provider`", max_length=16)),
                ("answer", models.CharField(help_text="a status, or the error", max_length=200)),
                ("failed", models.BooleanField(help_text="no answer that can be used")),
                ("milliseconds", models.PositiveIntegerField()),
                ("ended_at", models.DateTimeField(db_default=Now())),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="calls", to="payments.attempt"
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.AddConstraint(
            model_name="providercall",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="provider_call_stays",
                on="UPDATE OR DELETE",
                raises="money_is_append_only",
            ),
        ),
        migrations.RunSQL(
            [f"DROP FUNCTION IF EXISTS {function}() CASCADE" for function in FORMER], migrations.RunSQL.noop
        ),
    ]
