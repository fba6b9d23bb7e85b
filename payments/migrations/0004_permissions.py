"""What an operator may do in the admin, each with a permission of its own."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("payments", "0003_guards")]

    operations = [
        migrations.AlterModelOptions(
            name="payment",
            options={
                "ordering": ("-id",),
                "permissions": [
                    ("query_payment", "Can ask the provider about a payment"),
                    ("refund_payment", "Can refund a payment"),
                ],
            },
        ),
        migrations.AlterModelOptions(
            name="notification",
            options={
                "ordering": ("-id",),
                "permissions": [("replay_notification", "Can process a notification again")],
            },
        ),
        migrations.AlterModelOptions(
            name="anomaly",
            options={
                "ordering": ("-id",),
                "verbose_name_plural": "anomalies",
                "permissions": [("resolve_anomaly", "Can resolve an anomaly")],
            },
        ),
    ]
