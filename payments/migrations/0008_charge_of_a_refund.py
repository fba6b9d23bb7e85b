"""A refund that came before its payment counts only if it is of the charge that does; Stripe may have several."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0007_journal_by_row")]

    operations = [
        # with a default of the database's: the code of the version before it inserts facts meanwhile
        migrations.AddField(
            model_name="observation",
            name="paid_txn_id",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="of a refund: the charge it is of, if told",
                max_length=64,
            ),
        ),
    ]
