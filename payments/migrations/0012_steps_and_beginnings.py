"""PostgreSQL itself refuses a payment, an attempt or a refund that begins as paid or over, and of an attempt every step
that is not in `payments.states.ATTEMPT_NEXT`: what the provider has opened is not taken for unopened again.
"""

from django.db import migrations

_ATTEMPT_GUARD = """
CREATE OR REPLACE FUNCTION payments_attempt_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.payment_id, NEW.channel, NEW.method, NEW.merchant, NEW.amount_minor, NEW.currency)
            IS DISTINCT FROM
            (OLD.id, OLD.payment_id, OLD.channel, OLD.method, OLD.merchant, OLD.amount_minor, OLD.currency) THEN
        RAISE EXCEPTION 'attempt %: what was promised to the provider is for good', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'attempt_identity_is_fixed';
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status AND NOT ({steps}) THEN
        RAISE EXCEPTION 'attempt %: % -> % is not a step of an attempt', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'attempt_step_is_allowed';
    END IF;
    RETURN NEW;
END;
$$;
"""
_STEPS = """
            (OLD.status IN ('pending', 'failed') AND NEW.status IN ('closed', 'succeeded'))
            OR (OLD.status IN ('created', 'uncertain') AND NEW.status <> 'created')
            OR (OLD.status = 'closed' AND NEW.status = 'succeeded')"""
_FORMER_STEPS = """
            OLD.status IN ('created', 'pending', 'uncertain')
            OR (OLD.status = 'failed' AND NEW.status IN ('closed', 'succeeded'))
            OR (OLD.status = 'closed' AND NEW.status = 'succeeded')"""

# a pending payment's totals are zero by its CHECKs; an attempt that is brought along may be open at its provider
_BEGINNINGS = {
    "payments_payment": "'pending'",
    "payments_attempt": "'created', 'pending'",
    "payments_refund": "'requested'",
}
_REFUSE = """
CREATE FUNCTION payments_refuse_beginning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: what moves money does not begin as %', NEW.id, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'begins_at_the_beginning';
END;
$$;
"""
_BEGINS = """
CREATE TRIGGER payments_begins BEFORE INSERT ON {table}
    FOR EACH ROW WHEN (NEW.status NOT IN ({statuses})) EXECUTE FUNCTION payments_refuse_beginning();
"""


class Migration(migrations.Migration):
    dependencies = [("payments", "0011_audit_lines_stay")]

    operations = [
        # replaced in place: the code of either version takes the steps of both
        migrations.RunSQL(_ATTEMPT_GUARD.format(steps=_STEPS), _ATTEMPT_GUARD.format(steps=_FORMER_STEPS)),
        migrations.RunSQL(
            [
                _REFUSE,
                *(_BEGINS.format(table=table, statuses=statuses) for table, statuses in _BEGINNINGS.items()),
            ],
            "DROP FUNCTION payments_refuse_beginning() CASCADE;",
        ),
    ]
