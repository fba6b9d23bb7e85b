"""Calls to providers, for the case file of a payment. The version before writes none."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now

from idempotency.postgres.guards import Guard


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0004_delivery"),
    ]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="ProviderCall",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("method", models.CharField(help_text="of `payments.providers.base.Provider`", max_length=16)),
                ("answer", models.CharField(help_text="a status, or the error", max_length=200)),
                ("failed", models.BooleanField(help_text="no answer that can be used")),
                ("milliseconds", models.PositiveIntegerField()),
                ("ended_at", models.DateTimeField(db_default=Now())),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="calls", to="payments.attempt"
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        # by itself: undone, it takes its function along
        migrations.AddConstraint(
            model_name="providercall",
            constraint=Guard(
                error="restrict_violation",
                message="what is known about money stays",
                name="provider_call_stays",
                on="UPDATE OR DELETE",
                raises="money_is_append_only",
            ),
        ),
    ]
