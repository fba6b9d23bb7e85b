"""Index of what the reaper has still to forget of webhook events. Building it holds their writers up."""

from typing import Any

from django.db import migrations, models
from django.db.models import Q


def be_patient(apps: Any, schema_editor: Any) -> None:
    """Wait for a lock as long as requests may queue up behind it, and build as long as that takes."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = 0")


class Migration(migrations.Migration):
    dependencies = [("idempotency", "0006_steps_in_one_constant")]

    operations = [
        migrations.RunPython(be_patient, migrations.RunPython.noop),
        migrations.AddIndex(
            "webhookevent",
            models.Index(fields=["applied_at"], name="webhook_old", condition=Q(status="applied", attempts__gt=0)),
        ),
    ]
