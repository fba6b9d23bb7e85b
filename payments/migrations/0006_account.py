"""Accounts of attempts and notifications, empty where named like their channel; the version before writes none.

And of deliveries an index of those that were given up, and when that is, which the version before writes itself.
"""

from datetime import timedelta

from django.db import migrations, models
from django.db.models.functions import Now

from idempotency.postgres.guards import Guard


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0005_provider_call"),
    ]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.RemoveConstraint(
            model_name="attempt",
            name="attempt_identity_is_fixed",
        ),
        migrations.AddField(
            model_name="attempt",
            name="account_key",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddField(
            model_name="notification",
            name="account_key",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="ends_at",
            field=models.DateTimeField(db_default=Now() + timedelta(days=3), help_text="no attempt begins later"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status", "failed")), fields=["created_at"], name="delivery_given_up"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="what the provider has of it is for good",
                name="attempt_identity_is_fixed",
                on="UPDATE",
                when="NEW.id IS DISTINCT FROM OLD.id OR NEW.payment_id IS DISTINCT FROM OLD.payment_id OR NEW.channel IS DISTINCT FROM OLD.channel OR NEW.account_key IS DISTINCT FROM OLD.account_key OR NEW.method IS DISTINCT FROM OLD.method OR NEW.merchant IS DISTINCT FROM OLD.merchant OR NEW.amount_minor IS DISTINCT FROM OLD.amount_minor OR NEW.currency IS DISTINCT FROM OLD.currency",
            ),
        ),
    ]
