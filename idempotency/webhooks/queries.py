"""SQL of webhook events: the only writers of their table."""

# no row if a copy is stored; a concurrent one waits here until the first is
STORE = """
INSERT INTO idempotency_webhookevent (sender, event_id, entity, sequence, headers, body, received_at)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (sender, event_id) DO NOTHING RETURNING id
"""

# after a claim without a run
UNCOUNT = "UPDATE idempotency_webhookevent SET attempts = attempts - 1 WHERE id = %s AND status <> 'applied'"

# its predecessor is not applied yet
HOLD = "UPDATE idempotency_webhookevent SET status = 'held' WHERE id = %s"

# in the transaction of the handler's own writes
APPLIED = """
UPDATE idempotency_webhookevent
SET status = 'applied', attempts = attempts + %s, applied_at = statement_timestamp(), note = %s WHERE id = %s
"""

# the next run of a worker comes later each time, up to an hour; a copy from the sender is applied at once
FAILED = """
UPDATE idempotency_webhookevent
SET attempts = attempts + %(runs)s, error = %(error)s,
    status = CASE WHEN status = 'quarantined' OR attempts + %(runs)s >= %(attempts_max)s
        THEN 'quarantined' ELSE 'failed' END,
    due_at = statement_timestamp()
        + least(15 * 2 ^ least(attempts + %(runs)s - 1, 10), 3600) * interval '1 second'
WHERE id = %(id)s AND status <> 'applied' RETURNING status
"""

# an event comes after its predecessor, and never after one of its own number or a later one: a person applied
# that, or it shows that this one was applied and `DROP` has forgotten it
_NEXT = """(sequence IS NULL OR (sequence = 1 OR EXISTS (
    SELECT FROM idempotency_webhookevent before
    WHERE before.sender = event.sender AND before.entity = event.entity
      AND before.sequence = event.sequence - 1 AND before.status = 'applied'))
  AND NOT EXISTS (
    SELECT FROM idempotency_webhookevent later
    WHERE later.sender = event.sender AND later.entity = event.entity
      AND later.sequence >= event.sequence AND later.status = 'applied'))"""

# whether it may be applied now
IS_NEXT = f"SELECT {_NEXT} FROM idempotency_webhookevent event WHERE id = %s"  # noqa: S608  our own

# what a worker may apply now: due, of handlers that it has, and in its order
DUE = f"""
SELECT id FROM idempotency_webhookevent event
WHERE status IN ('stored', 'held', 'failed') AND due_at <= statement_timestamp() AND id > %s AND sender = ANY(%s)
  AND {_NEXT}
ORDER BY id LIMIT %s
"""  # noqa: S608  our own

# An event that ends its process keeps no other from being applied: for five minutes no worker tries it again. The
# attempt counts before it begins, or it would never be the last one.
CLAIM = """
UPDATE idempotency_webhookevent
SET attempts = attempts + 1, due_at = statement_timestamp() + interval '5 minutes'
WHERE id = %s AND due_at <= statement_timestamp() AND status <> 'applied'
"""

# the requests of applied events
PURGE_BODIES = """
WITH old AS (
    SELECT id FROM idempotency_webhookevent
    WHERE body IS NOT NULL AND applied_at < statement_timestamp() - %s * interval '1 second'
    ORDER BY applied_at LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_webhookevent SET body = NULL, headers = '{}' FROM old WHERE idempotency_webhookevent.id = old.id
"""

# applied events, the longest ago first. The last of an entity stays, because its successor may be still to come:
# without its attempts, by which it is not found again, until its successor is. OFFSET 0 keeps the planner from
# reading the whole table for a join
DROP = """
WITH old AS (
    SELECT id, sender, entity, sequence, sequence IS NOT NULL AND NOT EXISTS (
        SELECT FROM idempotency_webhookevent later
        WHERE later.sender = event.sender AND later.entity = event.entity
          AND later.sequence > event.sequence AND later.status = 'applied') AS is_last
    FROM idempotency_webhookevent event
    WHERE status = 'applied' AND attempts > 0
      AND applied_at < statement_timestamp() - %s * interval '1 second'
    ORDER BY applied_at LIMIT %s FOR UPDATE SKIP LOCKED
), kept AS (
    UPDATE idempotency_webhookevent SET attempts = 0 WHERE id = ANY(ARRAY(SELECT id FROM old WHERE is_last))
), dropped AS (
    DELETE FROM idempotency_webhookevent WHERE id = ANY(ARRAY(
        SELECT id FROM old WHERE NOT is_last UNION ALL
        SELECT kept_before.id FROM old CROSS JOIN LATERAL (
            SELECT id FROM idempotency_webhookevent
            WHERE sender = old.sender AND entity = old.entity AND sequence = old.sequence - 1
              AND status = 'applied' AND attempts = 0 OFFSET 0
        ) AS kept_before))
)
SELECT id FROM old
"""
