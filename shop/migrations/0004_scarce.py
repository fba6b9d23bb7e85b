"""Flash sales and coupons; and the order that is closed gives its unit back to its sale, in the same statement.

A trigger and not code, because orders are closed by several hands: nobody can forget it, and `returned_at` lets it
happen once. A refund leaves the unit sold.
"""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

FORWARD = """
CREATE FUNCTION shop_flash_sale_take_back() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    taken_from bigint;
BEGIN
    UPDATE shop_flashsalepurchase SET returned_at = statement_timestamp()
    WHERE order_id = NEW.id AND returned_at IS NULL
    RETURNING sale_id INTO taken_from;
    IF FOUND THEN
        UPDATE shop_flashsale SET sold = sold - 1, version = version + 1 WHERE id = taken_from;
    END IF;
    RETURN NULL;
END;
$$;

CREATE TRIGGER shop_flash_sale_take_back AFTER UPDATE OF status ON shop_order
    FOR EACH ROW WHEN (NEW.status = 'closed' AND OLD.status IS DISTINCT FROM 'closed')
    EXECUTE FUNCTION shop_flash_sale_take_back();
"""

BACKWARD = """
DROP TRIGGER shop_flash_sale_take_back ON shop_order;
DROP FUNCTION shop_flash_sale_take_back();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0003_fulfilment"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Campaign",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("slug", models.SlugField(max_length=64, unique=True)),
                ("name", models.CharField(max_length=120)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="FlashSale",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("units", models.PositiveIntegerField()),
                ("sold", models.PositiveIntegerField(default=0, editable=False)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("version", models.PositiveBigIntegerField(default=1, editable=False)),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="flash_sales", to="shop.product"
                    ),
                ),
            ],
            options={
                "ordering": ("-starts_at", "-id"),
            },
        ),
        migrations.CreateModel(
            name="FlashSalePurchase",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "place",
                    models.PositiveBigIntegerField(
                        editable=False,
                        help_text="in the order of arrival; none where the database alone admitted",
                        null=True,
                    ),
                ),
                ("bought_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("returned_at", models.DateTimeField(editable=False, null=True)),
                (
                    "buyer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "order",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="flash_sale_purchase",
                        to="shop.order",
                    ),
                ),
                (
                    "sale",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="purchases", to="shop.flashsale"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Coupon",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("code", models.CharField(max_length=32, unique=True)),
                ("drawn_at", models.DateTimeField(editable=False, null=True)),
                (
                    "campaign",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="coupons",
                        to="shop.campaign",
                    ),
                ),
                (
                    "drawn_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("drawn_by__isnull", True)),
                        fields=["campaign", "id"],
                        name="coupon_left",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("drawn_by__isnull", False)),
                        fields=("campaign", "drawn_by"),
                        name="coupon_once_a_campaign_and_user",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("drawn_at__isnull", True), ("drawn_by__isnull", True)),
                            models.Q(("drawn_at__isnull", False), ("drawn_by__isnull", False)),
                            _connector="OR",
                        ),
                        name="coupon_drawn_by_someone_at_some_time",
                    ),
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="flashsale",
            constraint=models.UniqueConstraint(
                fields=("product", "starts_at"), name="flash_sale_one_start_a_product"
            ),
        ),
        migrations.AddConstraint(
            model_name="flashsale",
            constraint=models.CheckConstraint(
                condition=models.Q(("units__gt", 0)), name="flash_sale_units_are_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="flashsale",
            constraint=models.CheckConstraint(
                condition=models.Q(("sold__gte", 0), ("sold__lte", models.F("units"))),
                name="flash_sale_sold_within_units",
            ),
        ),
        migrations.AddConstraint(
            model_name="flashsale",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends_at__gt", models.F("starts_at"))), name="flash_sale_ends_after_its_start"
            ),
        ),
        migrations.AddConstraint(
            model_name="flashsalepurchase",
            constraint=models.UniqueConstraint(
                condition=models.Q(("returned_at__isnull", True)),
                fields=("sale", "buyer"),
                name="flash_sale_once_a_buyer",
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
