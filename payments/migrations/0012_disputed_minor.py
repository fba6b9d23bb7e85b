"""What disputes took of a payment; the version before writes none."""

from django.db import migrations, models

# of credited charges, as of `payments.settlement.state.PaymentState.disputed_minor`
TAKEN = """
UPDATE payments_payment AS payment SET disputed_minor = greatest(moved.minor, 0) FROM (
    SELECT payment_id, sum(CASE fact.kind WHEN 'taken' THEN fact.amount_minor ELSE -fact.amount_minor END) AS minor
    FROM payments_observation AS fact JOIN payments_attempt AS attempt ON attempt.id = fact.attempt_id
    WHERE fact.kind IN ('taken', 'returned') AND EXISTS (
        SELECT FROM payments_observation AS charge
        WHERE charge.attempt_id = attempt.id AND charge.kind = 'paid' AND charge.credited
    ) GROUP BY payment_id
) AS moved WHERE payment.id = moved.payment_id
"""


class Migration(migrations.Migration):
    dependencies = [("payments", "0011_steps_in_one_constant")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.AddField(
            "payment",
            "disputed_minor",
            models.BigIntegerField(
                db_default=0, default=0, help_text="taken by disputes of what was paid, and not returned"
            ),
        ),
        migrations.RunSQL(TAKEN, migrations.RunSQL.noop),
    ]
