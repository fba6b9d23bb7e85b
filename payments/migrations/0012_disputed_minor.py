"""What disputes took of a payment; the version before writes none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0011_steps_in_one_constant")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.AddField(
            "payment",
            "disputed_minor",
            models.BigIntegerField(
                db_default=0, default=0, help_text="taken by disputes of what was paid, and not returned"
            ),
        ),
    ]
