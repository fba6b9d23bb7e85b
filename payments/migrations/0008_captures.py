"""When a capture of an attempt went out; the version before neither writes nor reads it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0007_open_kinds")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.AddField("attempt", "capture_submitted_at", models.DateTimeField(null=True)),
    ]
