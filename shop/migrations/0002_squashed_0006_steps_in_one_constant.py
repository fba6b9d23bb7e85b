"""Guards of the order, its coupons and receipt's language, names in Chinese.

In one transaction, so no row is unguarded meanwhile. Turned away by a session that holds a table for longer than
`LOCK_WAIT`, it is run again.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
FORMER = ("shop_order_guard_step", "shop_order_refuse")  # functions of triggers that were written by hand


class Migration(migrations.Migration):
    replaces = [
        ("shop", "0002_guards"),
        ("shop", "0003_coupons_receipts"),
        ("shop", "0004_product_in_chinese"),
        ("shop", "0005_campaign_in_chinese"),
        ("shop", "0006_steps_in_one_constant"),
    ]

    dependencies = [("shop", "0001_squashed_0007_orders_stay")]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        # orders first, as those who buy lock them: else a purchase in a flash sale would deadlock with us
        migrations.AddField(
            model_name="order",
            name="language",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=16),
        ),
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
                message="its version goes back, or a new status has no new version",
                name="order_version_only_grows",
                on="UPDATE",
                when="NEW.version < OLD.version OR (NEW.version = OLD.version AND (NEW.status IS DISTINCT FROM OLD.status))",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=Guard(
                message="its new status is not a step of an order",
                name="order_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{pending closed,pending paid,paid refunded}')",
            ),
        ),
        migrations.AddField(
            model_name="campaign",
            name="percent_off",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="coupon",
            name="order",
            field=models.OneToOneField(
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="coupon",
                to="shop.order",
            ),
        ),
        migrations.AddField(
            model_name="flashsale",
            name="former_price_minor",
            field=models.BigIntegerField(
                blank=True, help_text="what it cost before, to be shown struck through", null=True
            ),
        ),
        migrations.AddConstraint(
            model_name="campaign",
            constraint=models.CheckConstraint(
                condition=Q(percent_off__gte=0, percent_off__lte=90), name="campaign_leaves_something_to_pay"
            ),
        ),
        migrations.AddConstraint(
            model_name="coupon",
            constraint=models.CheckConstraint(
                condition=Q(order__isnull=True) | Q(drawn_by__isnull=False), name="coupon_used_only_if_drawn"
            ),
        ),
        migrations.AddConstraint(
            model_name="flashsale",
            constraint=models.CheckConstraint(
                condition=Q(former_price_minor__isnull=True) | Q(former_price_minor__gt=0),
                name="flash_sale_former_price_is_positive",
            ),
        ),
        migrations.AddField(
            model_name="product",
            name="name_zh",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=120, verbose_name="name in Chinese"
            ),
        ),
        migrations.AddField(
            model_name="product",
            name="description_zh",
            field=models.TextField(blank=True, db_default="", default="", verbose_name="description in Chinese"),
        ),
        migrations.AddField(
            model_name="campaign",
            name="name_zh",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=120, verbose_name="name in Chinese"
            ),
        ),
        migrations.RunSQL(
            [f"DROP FUNCTION IF EXISTS {function}() CASCADE" for function in FORMER], migrations.RunSQL.noop
        ),
    ]
