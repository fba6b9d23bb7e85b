"""Tables of payments, as all migrations before it left them."""

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import idempotency.ids
import idempotency.postgres.indexes


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("payments", "0001_initial"),
        ("payments", "0002_journal_and_events"),
        ("payments", "0003_guards"),
        ("payments", "0004_permissions"),
        ("payments", "0005_bills"),
        ("payments", "0006_indexes"),
        ("payments", "0007_journal_by_row"),
        ("payments", "0008_charge_of_a_refund"),
        ("payments", "0009_fresh_links"),
        ("payments", "0010_one_index_each"),
        ("payments", "0011_audit_lines_stay"),
        ("payments", "0012_steps_and_beginnings"),
        ("payments", "0013_who_tells_the_outcome"),
        ("payments", "0014_asked_at"),
        ("payments", "0015_audit_entries"),
        ("payments", "0016_words"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=idempotency.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("channel", models.CharField(max_length=16)),
                ("merchant", models.CharField(max_length=64)),
                ("amount_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("description", models.CharField(max_length=127)),
                (
                    "method",
                    models.CharField(
                        choices=[
                            ("native", "native"),
                            ("h5", "h5"),
                            ("jsapi", "jsapi"),
                            ("page", "page"),
                            ("precreate", "precreate"),
                            ("intent", "intent"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "payer",
                    models.JSONField(
                        default=dict, help_text="what the method must know of the shopper; until it is open"
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("created", "created"),
                            ("pending", "pending"),
                            ("uncertain", "uncertain"),
                            ("succeeded", "succeeded"),
                            ("closed", "closed"),
                            ("failed", "failed"),
                        ],
                        default="created",
                        max_length=12,
                    ),
                ),
                (
                    "next_action_type",
                    models.CharField(
                        blank=True,
                        choices=[("qr_code", "qr code"), ("redirect", "redirect"), ("jsapi", "jsapi")],
                        max_length=8,
                    ),
                ),
                ("next_action_url", models.TextField(blank=True)),
                ("next_action_params", models.JSONField(default=dict)),
                (
                    "next_action_expires_at",
                    models.DateTimeField(help_text="empty: as long as the trade can be paid", null=True),
                ),
                (
                    "reference",
                    models.CharField(
                        blank=True, help_text="the provider's own number, if asked by it", max_length=64
                    ),
                ),
                (
                    "message",
                    models.CharField(blank=True, help_text="the provider's word on a refusal", max_length=255),
                ),
                ("submitted_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField()),
                (
                    "next_query_at",
                    models.DateTimeField(help_text="when the timer asks the provider next", null=True),
                ),
                ("query_count", models.PositiveIntegerField(default=0)),
                (
                    "asked_at",
                    models.DateTimeField(help_text="when a shopper last had the provider asked", null=True),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "subject",
                    models.CharField(help_text="the row that it is about, as in payment:0190…", max_length=80),
                ),
                ("operator", models.CharField(help_text="their user name at that time", max_length=254)),
                (
                    "operator_id",
                    models.CharField(help_text="the primary key of their account at that time", max_length=64),
                ),
                ("message", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "audit entries",
                "ordering": ("id",),
                "indexes": [models.Index(fields=["subject"], name="audit_by_subject")],
            },
        ),
        migrations.CreateModel(
            name="BillComparison",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("channel", models.CharField(max_length=16)),
                ("merchant", models.CharField(max_length=64)),
                ("day", models.DateField(help_text="in the provider's time zone")),
                ("lines", models.PositiveIntegerField(help_text="of the bill")),
                (
                    "currency",
                    models.CharField(
                        help_text="of an account that has one; else that of the first line", max_length=3
                    ),
                ),
                ("theirs_minor", models.BigIntegerField(help_text="paid less refunded, by the bill")),
                ("ours_minor", models.BigIntegerField(help_text="paid less refunded, by our facts of that day")),
                ("compared_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ("-day", "channel"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("channel", "merchant", "day"), name="bill_once_per_account_and_day"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("channel", models.CharField(max_length=16)),
                ("notification_id", models.CharField(max_length=128)),
                ("event_type", models.CharField(max_length=64)),
                ("headers", models.JSONField(default=dict)),
                ("body", models.BinaryField()),
                ("digest", models.CharField(help_text="SHA-256 of what it says, hexadecimal", max_length=64)),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("applied", "applied"),
                            ("duplicate", "said nothing new"),
                            ("held", "came early, waits for its payment"),
                            ("quarantined", "an id that we know with other content"),
                            ("anomaly", "anomaly"),
                            ("ignored", "moves no money"),
                            ("error", "failed, will be processed again"),
                        ],
                        max_length=12,
                    ),
                ),
                ("detail", models.TextField(blank=True)),
                (
                    "attempts",
                    models.PositiveIntegerField(
                        default=1, help_text="how often it was processed; copies do not count"
                    ),
                ),
                ("out_trade_no", models.CharField(blank=True, max_length=64)),
                ("received_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("processed_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ("-id",),
                "permissions": [("replay_notification", "Can process a notification again")],
                "indexes": [
                    idempotency.postgres.indexes.BlockRangeIndex(
                        fields=["received_at"], name="notification_by_time"
                    ),
                    models.Index(fields=["out_trade_no"], name="notification_by_trade"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("channel", "notification_id"), name="notification_once_per_id"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("verdict", "error"), ("processed_at__isnull", False), _connector="OR"),
                        name="notification_verdict_has_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Observation",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("channel", models.CharField(max_length=16)),
                ("merchant", models.CharField(max_length=64)),
                ("provider_txn_id", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[("paid", "paid"), ("refunded", "refunded"), ("closed", "closed")], max_length=8
                    ),
                ),
                ("amount_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("out_refund_no", models.CharField(blank=True, max_length=64)),
                (
                    "paid_txn_id",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="of a refund: the charge it takes back, if named",
                        max_length=64,
                    ),
                ),
                ("credited", models.BooleanField(default=False, help_text="counts towards the payment's totals")),
                ("source", models.CharField(help_text="how we learned it first", max_length=32)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("observed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="observations",
                        to="payments.attempt",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="JournalEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("moved", "money came in or went out"),
                            ("counted", "what was held is now the order's"),
                        ],
                        max_length=8,
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "observation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="payments.observation",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "journal entries",
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=idempotency.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("order_id", models.UUIDField(unique=True)),
                ("amount_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("uncertain", "uncertain"),
                            ("succeeded", "succeeded"),
                            ("closed", "closed"),
                            ("partially_refunded", "partially refunded"),
                            ("refunded", "refunded"),
                        ],
                        default="pending",
                        max_length=20,
                    ),
                ),
                ("version", models.PositiveBigIntegerField(default=1)),
                ("paid_minor", models.BigIntegerField(default=0)),
                ("refunded_minor", models.BigIntegerField(default=0)),
                (
                    "reserved_minor",
                    models.BigIntegerField(default=0, help_text="on its way back: refunds that are not over yet"),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "permissions": [
                    ("query_payment", "Can ask the provider about a payment"),
                    ("refund_payment", "Can refund a payment"),
                    ("tell_outcome", "Can record what became of a payment or refund"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Difference",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("missing_here", "in the bill, unknown to us"),
                            ("missing_there", "known to us, not in the bill"),
                            ("amount", "in another amount"),
                        ],
                        max_length=13,
                    ),
                ),
                (
                    "moved",
                    models.CharField(
                        choices=[("paid", "paid"), ("refunded", "refunded"), ("closed", "closed")],
                        help_text="paid or refunded",
                        max_length=8,
                    ),
                ),
                ("provider_txn_id", models.CharField(max_length=64)),
                ("out_trade_no", models.CharField(max_length=64)),
                ("out_refund_no", models.CharField(blank=True, max_length=64)),
                ("theirs_minor", models.BigIntegerField(null=True)),
                ("ours_minor", models.BigIntegerField(null=True)),
                ("currency", models.CharField(max_length=3)),
                ("resolution", models.CharField(blank=True, max_length=160)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("found_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "comparison",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="differences",
                        to="payments.billcomparison",
                    ),
                ),
                (
                    "payment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="differences",
                        to="payments.payment",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "permissions": [("resolve_difference", "Can resolve a difference")],
            },
        ),
        migrations.AddField(
            model_name="attempt",
            name="payment",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="attempts", to="payments.payment"
            ),
        ),
        migrations.CreateModel(
            name="Anomaly",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("unknown_trade", "a fact about a number that is not ours"),
                            ("amount_mismatch", "paid in another amount or currency"),
                            ("merchant_mismatch", "paid to another merchant"),
                            ("paid_after_close", "paid after the order was closed"),
                            ("paid_twice", "paid twice"),
                            ("content_changed", "reported again with other content"),
                            ("refund_exceeds_paid", "refunded more than was paid"),
                            ("refund_failed", "a refund was refused"),
                            ("notification_failed", "a notification could not be processed"),
                        ],
                        max_length=24,
                    ),
                ),
                ("channel", models.CharField(max_length=16)),
                (
                    "reference",
                    models.CharField(help_text="number of the trade, refund or notification", max_length=160),
                ),
                ("detail", models.JSONField(default=dict)),
                ("resolution", models.CharField(blank=True, max_length=160)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "payment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="anomalies",
                        to="payments.payment",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "anomalies",
                "ordering": ("-id",),
                "permissions": [("resolve_anomaly", "Can resolve an anomaly")],
            },
        ),
        migrations.CreateModel(
            name="PaymentEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("number", models.PositiveBigIntegerField()),
                ("status", models.CharField(max_length=20)),
                ("paid_minor", models.BigIntegerField()),
                ("refunded_minor", models.BigIntegerField()),
                (
                    "attempts",
                    models.PositiveIntegerField(
                        default=0, help_text="how often acting on it was tried and failed"
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("handled_at", models.DateTimeField(null=True)),
                (
                    "payment",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="events",
                        to="payments.payment",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Refund",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=idempotency.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("amount_minor", models.BigIntegerField()),
                ("reason", models.CharField(blank=True, max_length=80)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("requested", "requested"),
                            ("processing", "processing"),
                            ("uncertain", "uncertain"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                        ],
                        default="requested",
                        max_length=12,
                    ),
                ),
                ("message", models.CharField(blank=True, max_length=255)),
                ("submitted_at", models.DateTimeField(null=True)),
                ("next_query_at", models.DateTimeField(null=True)),
                ("query_count", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "anomaly",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="refund",
                        to="payments.anomaly",
                    ),
                ),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="payments.attempt"
                    ),
                ),
                (
                    "payment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="payments.payment"
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="JournalLine",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("account", models.CharField(max_length=96)),
                ("amount_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                (
                    "entry",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="lines",
                        to="payments.journalentry",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "indexes": [models.Index(fields=["account", "currency"], name="journal_by_account")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("amount_minor", 0), _negated=True), name="journal_line_moves_something"
                    ),
                    models.UniqueConstraint(
                        fields=("entry", "account", "currency"), name="journal_account_once_per_entry"
                    ),
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="observation",
            constraint=models.UniqueConstraint(
                fields=("channel", "merchant", "provider_txn_id", "kind"), name="observation_once_per_fact"
            ),
        ),
        migrations.AddConstraint(
            model_name="observation",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_minor__gte", 0)), name="observation_amount_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="journalentry",
            constraint=models.UniqueConstraint(fields=("observation", "kind"), name="journal_once_per_fact"),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_minor__gt", 0)), name="payment_amount_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="payment_currency_is_iso"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(("version__gte", 1)), name="payment_version_starts_at_one"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(("paid_minor", 0), ("paid_minor", models.F("amount_minor")), _connector="OR"),
                name="payment_paid_in_full",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("refunded_minor__gte", 0),
                    ("reserved_minor__gte", 0),
                    (
                        "refunded_minor__lte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("paid_minor"), "-", models.F("reserved_minor")
                        ),
                    ),
                ),
                name="payment_refunds_within_paid",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("paid_minor", 0), ("status__in", ["pending", "uncertain", "closed"])),
                    models.Q(("paid_minor__gt", 0), ("refunded_minor", 0), ("status", "succeeded")),
                    models.Q(
                        ("refunded_minor__gt", 0),
                        ("refunded_minor__lt", models.F("paid_minor")),
                        ("status", "partially_refunded"),
                    ),
                    models.Q(
                        ("paid_minor__gt", 0), ("refunded_minor", models.F("paid_minor")), ("status", "refunded")
                    ),
                    _connector="OR",
                ),
                name="payment_status_fits_totals",
            ),
        ),
        migrations.AddIndex(
            model_name="difference",
            index=models.Index(
                condition=models.Q(("resolved_at__isnull", True)), fields=["found_at"], name="difference_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="difference",
            constraint=models.UniqueConstraint(
                fields=("comparison", "moved", "provider_txn_id"), name="difference_once_per_line"
            ),
        ),
        migrations.AddConstraint(
            model_name="difference",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("kind", "missing_here"), ("ours_minor__isnull", True), ("theirs_minor__isnull", False)
                    ),
                    models.Q(
                        ("kind", "missing_there"), ("ours_minor__isnull", False), ("theirs_minor__isnull", True)
                    ),
                    models.Q(("kind", "amount"), ("ours_minor__isnull", False), ("theirs_minor__isnull", False)),
                    _connector="OR",
                ),
                name="difference_fits_kind",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("status__in", ["created", "pending", "uncertain"])),
                fields=["next_query_at"],
                name="attempt_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_minor__gt", 0)), name="attempt_amount_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["created", "pending", "uncertain", "succeeded", "closed", "failed"])
                ),
                name="attempt_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status__in", ["created", "pending", "uncertain"])),
                fields=("payment", "channel", "method"),
                name="attempt_one_live_per_payment_and_method",
            ),
        ),
        migrations.AddIndex(
            model_name="anomaly",
            index=models.Index(
                condition=models.Q(("resolved_at__isnull", True)), fields=["id"], name="anomaly_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="anomaly",
            constraint=models.UniqueConstraint(fields=("kind", "channel", "reference"), name="anomaly_filed_once"),
        ),
        migrations.AddIndex(
            model_name="paymentevent",
            index=models.Index(
                condition=models.Q(("handled_at__isnull", True)), fields=["created_at"], name="event_waiting"
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentevent",
            constraint=models.UniqueConstraint(fields=("payment", "number"), name="event_once_per_version"),
        ),
        migrations.AddIndex(
            model_name="refund",
            index=models.Index(
                condition=models.Q(("status__in", ["processing", "requested", "uncertain"])),
                fields=["next_query_at"],
                name="refund_due",
            ),
        ),
        migrations.AddIndex(
            model_name="refund",
            index=models.Index(fields=["created_at"], name="refund_by_time"),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_minor__gt", 0)), name="refund_amount_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["requested", "processing", "uncertain", "succeeded", "failed"])
                ),
                name="refund_status_is_known",
            ),
        ),
    ]
