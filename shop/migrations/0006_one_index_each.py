"""No index that another one begins with: each write of a row would keep it for nobody."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from idempotency.postgres.indexes import WithoutIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("shop", "0005_stock_strategies"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        WithoutIndex(
            model_name="flashsale",
            name="product",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="flash_sales",
                to="shop.product",
            ),
        ),
        WithoutIndex(
            model_name="like",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        WithoutIndex(
            model_name="order",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="orders",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        WithoutIndex(
            model_name="orderitem",
            name="order",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="items",
                to="shop.order",
            ),
        ),
    ]
