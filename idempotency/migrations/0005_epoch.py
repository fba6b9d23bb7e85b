from uuid import uuid4

from django.db import migrations, models
from django.db.models.functions import Now


def begin(apps, schema_editor):
    apps.get_model("idempotency", "LedgerEpoch").objects.using(schema_editor.connection.alias).create(
        id=1, value=uuid4().hex
    )


class Migration(migrations.Migration):
    dependencies = [("idempotency", "0004_one_index_each")]

    operations = [
        migrations.CreateModel(
            name="LedgerEpoch",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("value", models.CharField(max_length=32)),
                ("since", models.DateTimeField(db_default=Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(id=1), name="ledger_epoch_is_one"),
                    models.CheckConstraint(condition=~models.Q(value=""), name="ledger_epoch_is_not_empty"),
                ],
            },
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
