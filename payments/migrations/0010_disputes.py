"""Words for facts and anomalies of disputes; the columns hold any, so the database stays as it is."""

from django.db import migrations, models

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
    dependencies = [("payments", "0009_order_model")]

    operations = [
        migrations.AlterField("observation", "kind", models.CharField(choices=FACTS, max_length=8)),
        migrations.AlterField(
            "difference", "moved", models.CharField(choices=FACTS, help_text="what moved", max_length=8)
        ),
        migrations.AlterField("anomaly", "kind", models.CharField(choices=ANOMALIES, max_length=24)),
    ]
