"""Indexes for what was read whole: facts of a day, settled anomalies, old deliveries. Building them holds writers up."""

from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

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
        migrations.AddIndex(
            "delivery",
            models.Index(
                Coalesce("delivered_at", "ends_at"),
                name="delivery_old",
                condition=Q(status__in=["delivered", "failed"]) & ~Q(log=[]),
            ),
        ),
    ]
