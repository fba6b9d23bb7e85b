"""PostgreSQL itself refuses what money never does, so that raw SQL cannot do it either.

A payment takes only the steps of `payments.states.NEXT`, its totals only grow, its version grows with every change of
them. Facts and the journal are append-only; an entry of the journal adds up to zero when its transaction commits.
Nothing of it is deleted.
"""

from django.db import migrations

REFUSE = """
CREATE FUNCTION payments_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: what is known about money stays', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'money_is_append_only';
END;
$$;
"""

APPEND_ONLY = """
CREATE TRIGGER payments_no_delete BEFORE DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION payments_refuse();
"""

UNCHANGEABLE = """
CREATE TRIGGER payments_no_update BEFORE UPDATE ON {table}
    FOR EACH ROW EXECUTE FUNCTION payments_refuse();
"""

PAYMENT = """
CREATE FUNCTION payments_payment_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.order_id, NEW.amount_minor, NEW.currency, NEW.owner_id)
            IS DISTINCT FROM (OLD.id, OLD.order_id, OLD.amount_minor, OLD.currency, OLD.owner_id) THEN
        RAISE EXCEPTION 'payment %: its order, owner and amount are for good', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_identity_is_fixed';
    END IF;
    IF NEW.paid_minor < OLD.paid_minor OR NEW.refunded_minor < OLD.refunded_minor THEN
        RAISE EXCEPTION 'payment %: paid % -> %, refunded % -> %: totals only grow',
            OLD.id, OLD.paid_minor, NEW.paid_minor, OLD.refunded_minor, NEW.refunded_minor
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_totals_only_grow';
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status AND NOT (
            OLD.status IN ('pending', 'uncertain', 'closed')
            OR (OLD.status = 'succeeded' AND NEW.status IN ('partially_refunded', 'refunded'))
            OR (OLD.status = 'partially_refunded' AND NEW.status = 'refunded')) THEN
        RAISE EXCEPTION 'payment %: % -> % is not a step of a payment', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_step_is_allowed';
    END IF;
    IF NEW.version < OLD.version OR (NEW.version = OLD.version
            AND (NEW.status, NEW.paid_minor, NEW.refunded_minor, NEW.reserved_minor)
                IS DISTINCT FROM (OLD.status, OLD.paid_minor, OLD.refunded_minor, OLD.reserved_minor)) THEN
        RAISE EXCEPTION 'payment %: a change needs a new version', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_version_only_grows';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER payments_payment_guard BEFORE UPDATE ON payments_payment
    FOR EACH ROW EXECUTE FUNCTION payments_payment_guard();
"""

# an attempt that was paid stays so, and one that is over comes back only as paid
ATTEMPT = """
CREATE FUNCTION payments_attempt_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.payment_id, NEW.channel, NEW.method, NEW.merchant, NEW.amount_minor, NEW.currency)
            IS DISTINCT FROM
            (OLD.id, OLD.payment_id, OLD.channel, OLD.method, OLD.merchant, OLD.amount_minor, OLD.currency) THEN
        RAISE EXCEPTION 'attempt %: what was promised to the provider is for good', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'attempt_identity_is_fixed';
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status AND NOT (
            OLD.status IN ('created', 'pending', 'uncertain')
            OR (OLD.status = 'failed' AND NEW.status IN ('closed', 'succeeded'))
            OR (OLD.status = 'closed' AND NEW.status = 'succeeded')) THEN
        RAISE EXCEPTION 'attempt %: % -> % is not a step of an attempt', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'attempt_step_is_allowed';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER payments_attempt_guard BEFORE UPDATE ON payments_attempt
    FOR EACH ROW EXECUTE FUNCTION payments_attempt_guard();
"""

REFUND = """
CREATE FUNCTION payments_refund_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.payment_id, NEW.attempt_id, NEW.amount_minor, NEW.anomaly_id)
            IS DISTINCT FROM (OLD.id, OLD.payment_id, OLD.attempt_id, OLD.amount_minor, OLD.anomaly_id) THEN
        RAISE EXCEPTION 'refund %: its payment and amount are for good', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_identity_is_fixed';
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status
            AND (OLD.status = 'succeeded' OR (OLD.status = 'failed' AND NEW.status <> 'succeeded')) THEN
        RAISE EXCEPTION 'refund %: % -> % is not a step of a refund', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_step_is_allowed';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER payments_refund_guard BEFORE UPDATE ON payments_refund
    FOR EACH ROW EXECUTE FUNCTION payments_refund_guard();
"""

# a fact is kept as it was told; all that may change is that it begins to count
OBSERVATION = """
CREATE FUNCTION payments_observation_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (NEW.credited AND NOT OLD.credited) OR to_jsonb(NEW) - 'credited' <> to_jsonb(OLD) - 'credited' THEN
        RAISE EXCEPTION 'observation %: a fact stays as it was told', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'money_is_append_only';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER payments_observation_guard BEFORE UPDATE ON payments_observation
    FOR EACH ROW EXECUTE FUNCTION payments_observation_guard();
"""

# looked at when the transaction commits, because the lines of an entry come one after the other
ZERO_SUM = """
CREATE FUNCTION payments_journal_adds_up() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint := CASE TG_TABLE_NAME WHEN 'payments_journalentry' THEN to_jsonb(NEW) -> 'id'
                     ELSE to_jsonb(NEW) -> 'entry_id' END;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM payments_journalline WHERE entry_id = number) OR EXISTS (
            SELECT 1 FROM payments_journalline WHERE entry_id = number
            GROUP BY currency HAVING sum(amount_minor) <> 0) THEN
        RAISE EXCEPTION 'journal entry % does not add up to zero', number
            USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_adds_up_to_zero';
    END IF;
    RETURN NULL;
END;
$$;
CREATE CONSTRAINT TRIGGER payments_journal_adds_up AFTER INSERT ON payments_journalline
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION payments_journal_adds_up();
CREATE CONSTRAINT TRIGGER payments_journal_adds_up AFTER INSERT ON payments_journalentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION payments_journal_adds_up();
"""

# what was observed before there was a journal, as `payments.settlement.journal` would have booked it
BOOK_WHAT_IS_KNOWN = """
WITH money AS (
    SELECT o.id, o.kind, o.channel, o.merchant, o.currency, o.credited, o.observed_at,
           CASE o.kind WHEN 'paid' THEN o.amount_minor ELSE -o.amount_minor END AS amount
    FROM payments_observation o JOIN payments_attempt a ON a.id = o.attempt_id
    WHERE o.kind IN ('paid', 'refunded') AND o.amount_minor > 0 AND o.merchant = a.merchant
), entry AS (
    INSERT INTO payments_journalentry (observation_id, kind, created_at)
    SELECT id, 'moved', observed_at FROM money ORDER BY id RETURNING id, observation_id
)
INSERT INTO payments_journalline (entry_id, account, amount_minor, currency)
SELECT entry.id, side.account, side.amount, money.currency
FROM entry JOIN money ON money.id = entry.observation_id
CROSS JOIN LATERAL (VALUES
    ('provider:' || money.channel || ':' || money.merchant, money.amount),
    (CASE WHEN money.credited THEN 'orders' ELSE 'held' END, -money.amount)) AS side (account, amount);
"""

KEPT = (
    "payments_payment",
    "payments_attempt",
    "payments_refund",
    "payments_observation",
    "payments_notification",
    "payments_anomaly",
    "payments_journalentry",
    "payments_journalline",
)

FORWARD = [
    "UPDATE payments_attempt SET method = 'page' WHERE channel = 'alipay';",
    BOOK_WHAT_IS_KNOWN,
    REFUSE,
    *(APPEND_ONLY.format(table=table) for table in KEPT),
    *(UNCHANGEABLE.format(table=table) for table in KEPT[-2:]),
    PAYMENT,
    ATTEMPT,
    REFUND,
    OBSERVATION,
    ZERO_SUM,
]

BACKWARD = [
    "DROP FUNCTION payments_journal_adds_up() CASCADE;",
    "DROP FUNCTION payments_observation_guard() CASCADE;",
    "DROP FUNCTION payments_refund_guard() CASCADE;",
    "DROP FUNCTION payments_attempt_guard() CASCADE;",
    "DROP FUNCTION payments_payment_guard() CASCADE;",
    "DROP FUNCTION payments_refuse() CASCADE;",
]


class Migration(migrations.Migration):
    dependencies = [("payments", "0002_journal_and_events")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
