"""Indexes for what was read whole: facts of a day, settled anomalies. Building them holds writers up."""

from django.db import migrations, models
from django.db.models import F

from idempotency.postgres.indexes import BlockRangeIndex


class Migration(migrations.Migration):
    dependencies = [("payments", "0013_count_disputes")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again. A site's own limit of a
        # statement is for requests
        migrations.RunSQL(
            "SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = 0", migrations.RunSQL.noop
        ),
        # in the order in which settlement writes
        migrations.AddIndex(
            "observation", BlockRangeIndex(fields=["occurred_at", "observed_at"], name="observation_by_time")
        ),
        migrations.AddIndex(
            "anomaly", models.Index(F("resolved_at").desc(nulls_first=True), F("id"), name="anomaly_by_end")
        ),
    ]
