"""Guards of the models, in place of the triggers that the replaced migrations wrote by hand.

In one transaction, so no row is unguarded meanwhile. Turned away by a writer that holds a table for longer than
`LOCK_WAIT`, it is run again.
"""

from django.db import migrations

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
FORMER = (
    "payments_refuse",
    "payments_refuse_beginning",
    "payments_payment_guard",
    "payments_attempt_guard",
    "payments_refund_guard",
    "payments_observation_guard",
    "payments_journal_adds_up",
)


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0001_squashed_0016_words"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
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
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.channel IS DISTINCT FROM OLD.channel OR NEW.method IS DISTINCT FROM OLD.method OR NEW.merchant IS DISTINCT FROM OLD.merchant OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="its new status is not a step of an attempt",
                name="attempt_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (('created', 'closed'), ('created', 'failed'), ('created', 'pending'), ('created', 'succeeded'), ('created', 'uncertain'), ('pending', 'closed'), ('pending', 'succeeded'), ('uncertain', 'closed'), ('uncertain', 'failed'), ('uncertain', 'pending'), ('uncertain', 'succeeded'), ('closed', 'succeeded'), ('failed', 'closed'), ('failed', 'succeeded'))",
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
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.order_id IS DISTINCT FROM OLD.order_id OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency OR NEW.owner_id IS DISTINCT FROM OLD.owner_id",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its new status is not a step of a payment",
                name="payment_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (('pending', 'closed'), ('pending', 'partially_refunded'), ('pending', 'pending'), ('pending', 'refunded'), ('pending', 'succeeded'), ('pending', 'uncertain'), ('uncertain', 'closed'), ('uncertain', 'partially_refunded'), ('uncertain', 'pending'), ('uncertain', 'refunded'), ('uncertain', 'succeeded'), ('uncertain', 'uncertain'), ('closed', 'closed'), ('closed', 'partially_refunded'), ('closed', 'pending'), ('closed', 'refunded'), ('closed', 'succeeded'), ('closed', 'uncertain'), ('succeeded', 'partially_refunded'), ('succeeded', 'refunded'), ('succeeded', 'succeeded'), ('partially_refunded', 'partially_refunded'), ('partially_refunded', 'refunded'), ('refunded', 'refunded'))",
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
                when="NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (('requested', 'failed'), ('requested', 'processing'), ('requested', 'succeeded'), ('requested', 'uncertain'), ('processing', 'failed'), ('processing', 'requested'), ('processing', 'succeeded'), ('processing', 'uncertain'), ('uncertain', 'failed'), ('uncertain', 'processing'), ('uncertain', 'requested'), ('uncertain', 'succeeded'), ('failed', 'succeeded'))",
            ),
        ),
        migrations.RunSQL(
            [f"DROP FUNCTION IF EXISTS {function}() CASCADE" for function in FORMER], migrations.RunSQL.noop
        ),
    ]
