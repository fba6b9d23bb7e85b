"""The SQL of staged deliveries: the only writers of what becomes of them."""

# the next one of an endpoint, for a lease: due, and no other of its payment is being sent or comes before it. Few
# at once, so that a slow endpoint does not take every worker
CLAIM = """
UPDATE payments_delivery
SET status = 'sending', attempts = attempts + 1, due_at = statement_timestamp() + make_interval(secs => %s),
    log = log || jsonb_build_array(jsonb_build_object('at', statement_timestamp()))
WHERE id = (
    SELECT id FROM payments_delivery AS next
    WHERE endpoint = %s AND status IN ('waiting', 'sending') AND due_at <= statement_timestamp()
      AND NOT EXISTS (
        SELECT FROM payments_delivery AS other
        WHERE other.payment_id = next.payment_id AND other.endpoint = next.endpoint AND other.id <> next.id
          AND (other.status = 'sending' OR other.status = 'waiting' AND other.sequence < next.sequence))
      AND %s > (
        SELECT count(*) FROM payments_delivery
        WHERE endpoint = %s AND status = 'sending' AND due_at > statement_timestamp())
    ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING id, type, sequence, data, created_at, attempts
"""

# only by the last claim: a process that was held up says nothing about the attempt of another
DELIVERED = """
UPDATE payments_delivery
SET status = 'delivered', delivered_at = statement_timestamp(),
    log = jsonb_set(log, '{-1,answer}', to_jsonb(%s::text))
WHERE id = %s AND attempts = %s AND status = 'sending'
"""

# another attempt follows, unless the time for it is over; by the last claim too
NOT_DELIVERED = """
UPDATE payments_delivery
SET status = CASE WHEN %s OR next.due_at > ends_at THEN 'failed' ELSE 'waiting' END, due_at = next.due_at,
    log = jsonb_set(log, '{-1,answer}', to_jsonb(%s::text))
FROM (SELECT statement_timestamp() + make_interval(secs => %s)) AS next (due_at)
WHERE id = %s AND attempts = %s AND status = 'sending'
"""

# whatever became of it, but not while it is being sent
AGAIN = """
UPDATE payments_delivery
SET status = 'waiting', delivered_at = NULL, due_at = statement_timestamp(),
    ends_at = DEFAULT
WHERE id = %s AND status <> 'sending' RETURNING id
"""

# which of these endpoints have something due
DUE = """
SELECT name FROM unnest(%s::text[]) AS name WHERE EXISTS (
    SELECT FROM payments_delivery
    WHERE endpoint = name AND status IN ('waiting', 'sending') AND due_at <= statement_timestamp()
)
"""

# given up: what the project no longer has an endpoint for, once its time is over
END = """
WITH lapsed AS (
    SELECT id FROM payments_delivery WHERE status IN ('waiting', 'sending') AND endpoint <> ALL(%s)
      AND greatest(due_at, ends_at) < statement_timestamp()
    LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE payments_delivery
SET status = 'failed',
    log = log || jsonb_build_array(jsonb_build_object('at', statement_timestamp(), 'answer', %s::text))
FROM lapsed WHERE payments_delivery.id = lapsed.id
RETURNING lapsed.id
"""

# ended ones, the longest ago first. The last of a payment and endpoint stays, as its successor is counted from it:
# without its log, by which it is not found again, until its successor is. OFFSET 0: as in settlement
DROP = """
WITH old AS (
    SELECT id, payment_id, endpoint, sequence, payment_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM payments_delivery AS later
        WHERE later.payment_id = ended.payment_id AND later.endpoint = ended.endpoint
          AND later.sequence > ended.sequence) AS is_last
    FROM payments_delivery AS ended
    WHERE status IN ('delivered', 'failed') AND log <> '[]'
      AND coalesce(delivered_at, ends_at) < statement_timestamp() - make_interval(secs => %s)
    ORDER BY coalesce(delivered_at, ends_at) LIMIT %s FOR UPDATE SKIP LOCKED
), kept AS (
    UPDATE payments_delivery SET log = '[]' WHERE id = ANY(ARRAY(SELECT id FROM old WHERE is_last))
), dropped AS (
    DELETE FROM payments_delivery WHERE status IN ('delivered', 'failed') AND id = ANY(ARRAY(
        SELECT id FROM old WHERE NOT is_last UNION ALL
        SELECT kept_before.id FROM old CROSS JOIN LATERAL (
            SELECT id FROM payments_delivery
            WHERE payment_id = old.payment_id AND endpoint = old.endpoint AND sequence = old.sequence - 1
              AND log = '[]' OFFSET 0
        ) AS kept_before))
)
SELECT id FROM old
"""

# the deliveries that each of these endpoints never took
GIVEN_UP = """
SELECT endpoint, count(*) FROM payments_delivery WHERE status = 'failed' AND endpoint = ANY(%s) GROUP BY endpoint
"""

# seconds for which each endpoint's oldest delivery has waited
OLDEST = """
SELECT endpoint, extract(epoch FROM statement_timestamp() - min(created_at))::float8
FROM payments_delivery WHERE status IN ('waiting', 'sending') GROUP BY endpoint
"""
