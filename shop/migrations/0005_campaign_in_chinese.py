"""Names of campaigns in Chinese; empty: as they were first written."""

from django.db import migrations, models

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0004_product_in_chinese"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="campaign",
            name="name_zh",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=120, verbose_name="name in Chinese"
            ),
        ),
    ]
