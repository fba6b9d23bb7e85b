"""Coupons that an order takes, the former price of a flash sale, the language for an order's receipt."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0002_guards"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        # orders first, as those who buy lock them: else a purchase in a flash sale would deadlock with us
        migrations.AddField(
            model_name="order",
            name="language",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=16),
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
    ]
