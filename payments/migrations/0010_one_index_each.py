"""No index that another one begins with: each write of a row would keep it for nobody."""

import django.db.models.deletion
from django.db import migrations, models

from idempotency.postgres.indexes import WithoutIndex

# what a field with `db_index` has beside its index, for a search by the beginning that nobody does
_BY_BEGINNING = "payments_notification_out_trade_no_89278d8d_like"


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("payments", "0009_fresh_links")]

    operations = [
        WithoutIndex(
            model_name="difference",
            name="comparison",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="differences",
                to="payments.billcomparison",
            ),
        ),
        WithoutIndex(
            model_name="journalentry",
            name="observation",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="payments.observation",
            ),
        ),
        WithoutIndex(
            model_name="journalline",
            name="entry",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="lines",
                to="payments.journalentry",
            ),
        ),
        WithoutIndex(
            model_name="paymentevent",
            name="payment",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="events",
                to="payments.payment",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER INDEX IF EXISTS payments_notification_out_trade_no_89278d8d RENAME TO notification_by_trade",
                    "ALTER INDEX IF EXISTS notification_by_trade RENAME TO payments_notification_out_trade_no_89278d8d",
                ),
                # each waits for every transaction that has to do with the table, however long
                migrations.RunSQL("SET statement_timeout = 0", "RESET statement_timeout"),
                migrations.RunSQL(
                    f"DROP INDEX CONCURRENTLY IF EXISTS {_BY_BEGINNING}",
                    [
                        f"DROP INDEX CONCURRENTLY IF EXISTS {_BY_BEGINNING}",
                        f"CREATE INDEX CONCURRENTLY {_BY_BEGINNING} "
                        "ON payments_notification (out_trade_no varchar_pattern_ops)",
                    ],
                ),
                migrations.RunSQL("RESET statement_timeout", "SET statement_timeout = 0"),
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="notification",
                    name="out_trade_no",
                    field=models.CharField(blank=True, max_length=64),
                ),
                migrations.AddIndex(
                    model_name="notification",
                    index=models.Index(fields=["out_trade_no"], name="notification_by_trade"),
                ),
            ],
        ),
    ]
