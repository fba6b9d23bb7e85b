"""Products' names and descriptions in Chinese; empty: as they were first written."""

from django.db import migrations, models

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0003_coupons_receipts"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
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
    ]
