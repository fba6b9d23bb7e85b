"""No index that another one begins with: each write of a row would keep it for nobody."""

import django.db.models.deletion
from django.db import migrations, models

from idempotency.postgres.indexes import WithoutIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("idempotency", "0003_unique_key_first")]

    operations = [
        WithoutIndex(
            model_name="ledgerattempt",
            name="entry",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="attempts",
                to="idempotency.ledgerentry",
            ),
        ),
    ]
