"""Orders whose primary key is no UUID: its text, beside `order_id`, which stays what one payment an order goes by.

The version before writes none: its orders have UUIDs.
"""

from django.db import migrations, models

from idempotency.postgres.guards import Guard


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0002_guards"),
    ]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
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
        migrations.RemoveConstraint(model_name="payment", name="payment_identity_is_fixed"),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its order, owner and amount are for good",
                name="payment_identity_is_fixed",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.order_id IS DISTINCT FROM OLD.order_id OR NEW.order_key IS DISTINCT FROM OLD.order_key OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency OR NEW.owner_id IS DISTINCT FROM OLD.owner_id",
            ),
        ),
    ]
