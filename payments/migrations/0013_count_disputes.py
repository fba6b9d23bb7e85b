"""Count what disputes had taken; apart from the new column, whose lock lasts until the commit."""

from django.db import migrations

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
    dependencies = [("payments", "0012_disputed_minor")]

    operations = [migrations.RunSQL(TAKEN, migrations.RunSQL.noop)]
