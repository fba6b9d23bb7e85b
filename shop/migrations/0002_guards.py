"""Guards of the order, in place of the triggers that the replaced migrations wrote by hand.

In one transaction, as in payments; turned away by a writer, it is run again.
"""

from django.db import migrations

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
FORMER = ("shop_order_guard_step", "shop_order_refuse")


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_squashed_0007_orders_stay"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="order",
            constraint=Guard(
                error="restrict_violation",
                message="it stays, under its number",
                name="order_stays",
                on="DELETE OR UPDATE OF id",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=Guard(
                message="an order begins as pending",
                name="order_begins_pending",
                on="INSERT",
                when="NEW.status <> 'pending'",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=Guard(
                message="its new status is not a step of an order",
                name="order_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (('pending', 'closed'), ('pending', 'paid'), ('paid', 'refunded'))",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=Guard(
                message="its version goes back, or a new status has no new version",
                name="order_version_only_grows",
                on="UPDATE",
                when="NEW.version < OLD.version OR (NEW.version = OLD.version AND (NEW.status IS DISTINCT FROM OLD.status))",
            ),
        ),
        migrations.RunSQL(
            [f"DROP FUNCTION IF EXISTS {function}() CASCADE" for function in FORMER], migrations.RunSQL.noop
        ),
    ]
