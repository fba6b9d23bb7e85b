"""The same steps in a shorter condition, which PostgreSQL parses at each statement."""

from django.db import migrations

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


class Migration(migrations.Migration):
    dependencies = [
        ("idempotency", "0005_request_log"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        migrations.RemoveConstraint(
            model_name="webhookevent",
            name="webhook_event_step",
        ),
        migrations.AddConstraint(
            model_name="webhookevent",
            constraint=Guard(
                message="no step of an event",
                name="webhook_event_step",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{stored applied,stored failed,stored held,stored quarantined,held applied,held failed,held quarantined,failed applied,failed failed,failed held,failed quarantined,quarantined applied}')",
            ),
        ),
    ]
