"""The model of a payment's order, so that a key of another model's is another order; the version before writes none.

Payments that there are belong to the orders of today's ``PAYMENTS['ORDER']``.
"""

from typing import Any

from django.db import migrations, models

from payments.order_keys import orders_model


def name_model(apps: Any, editor: Any) -> None:
    rows = apps.get_model("payments", "Payment").objects.using(editor.connection.alias)
    rows.exclude(order_key="").update(order_model=orders_model())


class Migration(migrations.Migration):
    dependencies = [("payments", "0008_captures")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
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
        migrations.RunPython(name_model, migrations.RunPython.noop),
    ]
