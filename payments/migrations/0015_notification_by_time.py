"""No query asks for notifications by their time: their lists go by number."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("payments", "0014_growing_tables")]

    operations = [
        # requests queue up behind a lock that is waited for; turned away, it is run again
        migrations.RunSQL("SET LOCAL lock_timeout = '3s'", migrations.RunSQL.noop),
        migrations.RemoveIndex("notification", "notification_by_time"),
    ]
