"""The same steps in a shorter condition, which PostgreSQL parses at each statement."""

from django.db import migrations

from idempotency.postgres.guards import Guard

LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0010_disputes"),
    ]

    operations = [
        migrations.RunSQL(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'", migrations.RunSQL.noop),
        # the payment's table first, as settlement does, or both would wait for each other
        migrations.RemoveConstraint(
            model_name="payment",
            name="payment_step_is_allowed",
        ),
        migrations.RemoveConstraint(
            model_name="attempt",
            name="attempt_step_is_allowed",
        ),
        migrations.RemoveConstraint(
            model_name="refund",
            name="refund_step_is_allowed",
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=Guard(
                message="its new status is not a step of an attempt",
                name="attempt_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{created closed,created failed,created pending,created succeeded,created uncertain,pending closed,pending succeeded,uncertain closed,uncertain failed,uncertain pending,uncertain succeeded,closed succeeded,failed closed,failed succeeded}')",
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=Guard(
                message="its new status is not a step of a payment",
                name="payment_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{pending closed,pending partially_refunded,pending pending,pending refunded,pending succeeded,pending uncertain,uncertain closed,uncertain partially_refunded,uncertain pending,uncertain refunded,uncertain succeeded,uncertain uncertain,closed closed,closed partially_refunded,closed pending,closed refunded,closed succeeded,closed uncertain,succeeded partially_refunded,succeeded refunded,succeeded succeeded,partially_refunded partially_refunded,partially_refunded refunded,refunded refunded}')",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=Guard(
                message="its new status is not a step of a refund",
                name="refund_step_is_allowed",
                on="UPDATE",
                when="NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{requested failed,requested processing,requested succeeded,requested uncertain,processing failed,processing requested,processing succeeded,processing uncertain,uncertain failed,uncertain processing,uncertain requested,uncertain succeeded,failed succeeded}')",
            ),
        ),
    ]
