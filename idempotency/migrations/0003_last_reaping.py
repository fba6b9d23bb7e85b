"""Time of the last reaping. A ledger of before counts as reaped when it is upgraded, a new one when it is made."""

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("idempotency", "0002_lean_entry")]

    operations = [
        migrations.AddField(
            model_name="ledgerepoch",
            name="reaped_at",
            field=models.DateTimeField(
                db_default=Now(), help_text="end of the last reaping; at first, of the migration"
            ),
        ),
    ]
