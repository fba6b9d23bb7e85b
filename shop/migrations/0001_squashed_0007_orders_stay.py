"""Tables of the shop; a closed order returns its unit to its flash sale."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import idempotency.ids

# a trigger and not code, because orders are closed by several hands; a refund leaves the unit sold
TAKE_BACK = """
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

LEAVE = """
DROP TRIGGER shop_flash_sale_take_back ON shop_order;
DROP FUNCTION shop_flash_sale_take_back();
"""


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("shop", "0001_initial"),
        ("shop", "0002_order_transitions"),
        ("shop", "0003_fulfilment"),
        ("shop", "0004_scarce"),
        ("shop", "0005_stock_strategies"),
        ("shop", "0006_one_index_each"),
        ("shop", "0007_orders_stay"),
    ]

    dependencies = [
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
            ],
            options={
                "ordering": ("-starts_at", "-id"),
            },
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=idempotency.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Awaiting payment"),
                            ("paid", "Paid"),
                            ("closed", "Closed"),
                            ("refunded", "Refunded"),
                        ],
                        default="pending",
                        max_length=8,
                    ),
                ),
                ("version", models.PositiveBigIntegerField(default=1, editable=False)),
                ("total_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("note", models.CharField(blank=True, max_length=500)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("expires_at", models.DateTimeField()),
                ("closing_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("paid_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("closed_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="orders",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Fulfilment",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[("released", "To be sent"), ("recalled", "Not to be sent")], max_length=8
                    ),
                ),
                ("number", models.PositiveBigIntegerField()),
                ("released_at", models.DateTimeField(editable=False, null=True)),
                ("recalled_at", models.DateTimeField(editable=False, null=True)),
                (
                    "order",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="fulfilment", to="shop.order"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
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
                    "sale",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="purchases", to="shop.flashsale"
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
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("sku", models.SlugField(max_length=64, unique=True)),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True)),
                (
                    "picture",
                    models.CharField(
                        choices=[
                            ("parcel", "Parcel"),
                            ("mug", "Mug"),
                            ("poster", "Poster"),
                            ("sneaker", "Sneaker"),
                        ],
                        default="parcel",
                        max_length=16,
                    ),
                ),
                ("price_minor", models.BigIntegerField(help_text="in the currency's minor unit: 1990 is ¥19.90")),
                ("currency", models.CharField(default="CNY", help_text="ISO 4217", max_length=3)),
                ("stock", models.IntegerField(default=0)),
                (
                    "stock_strategy",
                    models.CharField(
                        choices=[
                            ("conditional", "One row, conditional update"),
                            ("version", "One row, version and retry"),
                            ("row_lock", "One row, locked"),
                            ("segmented", "Several rows, for a product that many buy at once"),
                        ],
                        db_default="conditional",
                        default="conditional",
                        max_length=16,
                    ),
                ),
                ("stock_segments", models.PositiveSmallIntegerField(db_default=16, default=16)),
                (
                    "flash_only",
                    models.BooleanField(default=False, help_text="sold in flash sales alone, never by an order"),
                ),
                ("version", models.PositiveBigIntegerField(default=1, editable=False)),
            ],
            options={
                "ordering": ("id",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("stock__gte", 0)), name="product_stock_never_below_zero"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("stock_strategy__in", ["conditional", "version", "row_lock", "segmented"])
                        ),
                        name="product_stock_strategy_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("stock", 0), models.Q(("stock_strategy", "segmented"), _negated=True), _connector="OR"
                        ),
                        name="product_units_stand_in_one_place",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("stock_segments__gte", 1), ("stock_segments__lte", 64)),
                        name="product_stock_segments_are_few",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("price_minor__gt", 0)), name="product_price_is_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="product_currency_is_iso"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="product_version_starts_at_one"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OrderItem",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("sku", models.SlugField(db_index=False, max_length=64)),
                ("name", models.CharField(max_length=120)),
                ("quantity", models.PositiveIntegerField()),
                ("price_minor", models.BigIntegerField()),
                (
                    "order",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="items",
                        to="shop.order",
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="shop.product"
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Like",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="likes", to="shop.product"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="flashsale",
            name="product",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="flash_sales",
                to="shop.product",
            ),
        ),
        migrations.CreateModel(
            name="StockSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("number", models.PositiveSmallIntegerField()),
                ("units", models.IntegerField()),
                (
                    "product",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="segments",
                        to="shop.product",
                    ),
                ),
            ],
            options={
                "ordering": ("product", "number"),
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
        migrations.AddIndex(
            model_name="order",
            index=models.Index(fields=["user", "-id"], name="order_by_user"),
        ),
        migrations.AddIndex(
            model_name="order",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["expires_at"], name="order_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["pending", "paid", "closed", "refunded"])),
                name="order_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(("version__gte", 1)), name="order_version_starts_at_one"
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(("total_minor__gt", 0)), name="order_total_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="order_currency_is_iso"
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_at__isnull", True), ("paid_at__isnull", True), ("status", "pending")),
                    models.Q(("closed_at__isnull", False), ("paid_at__isnull", True), ("status", "closed")),
                    models.Q(
                        ("closed_at__isnull", True),
                        ("paid_at__isnull", False),
                        ("status__in", ["paid", "refunded"]),
                    ),
                    _connector="OR",
                ),
                name="order_times_fit_status",
            ),
        ),
        migrations.AddConstraint(
            model_name="fulfilment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("recalled_at__isnull", True), ("released_at__isnull", False), ("status", "released")
                    ),
                    models.Q(("recalled_at__isnull", False), ("status", "recalled")),
                    _connector="OR",
                ),
                name="fulfilment_times_fit_status",
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
        migrations.AddConstraint(
            model_name="orderitem",
            constraint=models.UniqueConstraint(
                fields=("order", "product"), name="item_once_per_order_and_product"
            ),
        ),
        migrations.AddConstraint(
            model_name="orderitem",
            constraint=models.CheckConstraint(
                condition=models.Q(("quantity__gt", 0)), name="item_quantity_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="orderitem",
            constraint=models.CheckConstraint(
                condition=models.Q(("price_minor__gt", 0)), name="item_price_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="like",
            constraint=models.UniqueConstraint(fields=("user", "product"), name="like_once_per_user_and_product"),
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
            model_name="stocksegment",
            constraint=models.UniqueConstraint(fields=("product", "number"), name="stock_segment_once_per_number"),
        ),
        migrations.AddConstraint(
            model_name="stocksegment",
            constraint=models.CheckConstraint(
                condition=models.Q(("units__gte", 0)), name="stock_segment_never_below_zero"
            ),
        ),
        migrations.RunSQL(TAKE_BACK, LEAVE),
    ]
