"""SQL of settlement: one statement reads a payment, the others write a decision.

A text never changes and its values are parameters, so a session plans each once. Lists are limited to their
number, by which the planner counts on few: else it would plan each use again. Subqueries are walled off by
OFFSET 0: else a plan made while a table was empty would go on reading all of it when it is not.
"""

# what a payment is, by its own id or by the number of one of its attempts; with the facts of these identities,
# wherever they are
READ = """
SELECT payment.id, payment.order_id, payment.currency, payment.status, payment.version, payment.paid_minor,
    payment.refunded_minor, payment.reserved_minor, payment.order_key, payment.order_model,
    payment.disputed_minor,
    (SELECT json_agg(json_build_array(id, channel, merchant, amount_minor, currency, status, account_key)
            ORDER BY id)
     FROM payments_attempt WHERE payment_id = payment.id),
    (SELECT json_agg(json_build_array(fact.channel, fact.merchant, provider_txn_id, kind, attempt_id,
            fact.amount_minor, fact.currency, out_refund_no, paid_txn_id, credited, source) ORDER BY fact.id)
     FROM payments_attempt AS attempt CROSS JOIN LATERAL (
         SELECT * FROM payments_observation WHERE attempt_id = attempt.id OFFSET 0
     ) AS fact WHERE attempt.payment_id = payment.id),
    (SELECT json_agg(json_build_array(refund.id, attempt_id, refund.amount_minor,
            coalesce(nullif(anomaly.detail ->> 'currency', ''), payment.currency), status, anomaly_id)
            ORDER BY refund.id)
     FROM payments_refund AS refund LEFT JOIN payments_anomaly AS anomaly ON anomaly.id = anomaly_id
     WHERE refund.payment_id = payment.id),
    (SELECT json_agg(json_build_array(channel, reference, detail))
     FROM payments_anomaly WHERE payment_id = payment.id AND kind = 'disputed'),
    (SELECT json_agg(json_build_array(fact.channel, fact.merchant, provider_txn_id, fact.kind, attempt_id,
            amount_minor, currency, out_refund_no, paid_txn_id, credited, source))
     FROM (
         SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]) LIMIT %s::bigint
     ) AS wanted (merchant, number, kind) CROSS JOIN LATERAL (
         SELECT * FROM payments_observation
         WHERE channel = %s AND merchant = wanted.merchant AND provider_txn_id = wanted.number
             AND kind = wanted.kind OFFSET 0
     ) AS fact)
FROM payments_payment AS payment
WHERE payment.id = coalesce(%s::uuid, (
    SELECT payment_id FROM payments_attempt WHERE id = %s::uuid AND channel = %s
))
"""

# whose attempt was charged, or lost its charge to a dispute, under this number of the provider's
CHARGED = """
SELECT attempt_id FROM payments_observation
WHERE channel = %s AND merchant = %s AND provider_txn_id = %s AND kind IN ('paid', 'taken')
"""

# wait for the payment, and have others wait, by the number of one of its attempts
LOCK_BY_NUMBER = """
SELECT id FROM payments_payment WHERE id = (SELECT payment_id FROM payments_attempt WHERE id = %s)
FOR NO KEY UPDATE
"""

# the same by its own id
LOCK_BY_ID = "SELECT id FROM payments_payment WHERE id = %s FOR NO KEY UPDATE"

# status and totals, if the payment has neither changed since it was read nor got another attempt
SETTLE = """
UPDATE payments_payment SET status = %s, version = %s, paid_minor = %s, refunded_minor = %s, reserved_minor = %s,
    disputed_minor = %s, updated_at = statement_timestamp()
WHERE id = %s AND version = %s AND %s = (
    SELECT count(*) FROM (SELECT FROM payments_attempt WHERE payment_id = %s OFFSET 0) AS attempt
) RETURNING id
"""

# store a fact; its unique identity refuses a second one
STORE = """
INSERT INTO payments_observation (channel, merchant, provider_txn_id, kind, attempt_id, amount_minor, currency,
    out_refund_no, paid_txn_id, credited, source, occurred_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

# the end of a statement: book a `fact`, by two lines that add up to zero. Without the fact there are none, and the
# division fails, also beside the COMMIT
_BOOK = """
), entry AS (
    INSERT INTO payments_journalentry (observation_id, kind) SELECT id, %s FROM fact RETURNING id
), line AS (
    INSERT INTO payments_journalline (entry_id, account, amount_minor, currency)
    SELECT entry.id, side.account, side.sign * fact.amount_minor, fact.currency
    FROM fact CROSS JOIN entry CROSS JOIN (VALUES (%s, 1), (%s, -1)) AS side (account, sign)
    RETURNING id
)
SELECT 2 / count(*) FROM line
"""

# store a fact and book so much of it
STORE_AND_BOOK = "WITH fact AS (" + STORE + "RETURNING id, %s::bigint AS amount_minor, currency" + _BOOK

# count a stored fact from now on, and book that
_COUNTED = """
WITH fact AS (
    UPDATE payments_observation SET credited = true
    WHERE channel = %s AND merchant = %s AND provider_txn_id = %s AND kind = %s
    RETURNING id, amount_minor, currency
"""

COUNT_AND_BOOK = _COUNTED + _BOOK

# from a status that may still end so
END_ATTEMPT = (
    "UPDATE payments_attempt SET status = %s, next_query_at = NULL WHERE id = %s AND status = ANY(%s) RETURNING id"
)

# have the timer ask about it at once, or close it; nothing if it has ended
ASK_SOON = (
    "UPDATE payments_attempt SET next_query_at = statement_timestamp(), query_count = 0"
    " WHERE id = %s AND next_query_at IS NOT NULL"
)

# its money went back
END_REFUND = "UPDATE payments_refund SET status = 'succeeded', next_query_at = NULL, message = '' WHERE id = %s"

# the end of a statement: what it has `decided`, for each of these endpoints, as the next of its payment, whose
# unique sequence refuses two at once
_STAGE = """
INSERT INTO payments_delivery (id, endpoint, type, payment_id, sequence, data, status, attempts, log)
SELECT wanted.id, wanted.endpoint, decided.type, decided.payment_id,
    (SELECT coalesce(max(sequence), 0) + 1 FROM payments_delivery AS before
     WHERE before.payment_id = decided.payment_id AND before.endpoint = wanted.endpoint),
    decided.data, 'waiting', 0, '[]'
FROM decided
    CROSS JOIN (SELECT * FROM unnest(%s::uuid[], %s::text[]) LIMIT %s::bigint) AS wanted (id, endpoint)
"""

# stage what is decided about a payment
STAGE_DELIVERIES = "WITH decided (type, payment_id, data) AS (SELECT %s, %s::uuid, %s::jsonb)" + _STAGE

# once per kind, channel and reference; one that says something else is open again, unless policy refunds it.
# What is new is staged
_FILED = """
WITH decided AS (
    INSERT INTO payments_anomaly (kind, channel, reference, payment_id, detail, resolution)
    VALUES (%s, %s, %s, %s, %s, '')
    ON CONFLICT (kind, channel, reference) DO UPDATE
    SET resolution = '', resolved_at = NULL,
        detail = CASE WHEN payments_anomaly.detail ? 'final' THEN '{"final": "yes"}'::jsonb ELSE '{}' END
            || excluded.detail
    WHERE NOT payments_anomaly.detail @> excluded.detail AND NOT %s
    RETURNING %s AS type, payment_id, %s::jsonb AS data
)
"""

FILE = _FILED + _STAGE

# what is filed says the same again, of later: it is no new work
RESTATE = "UPDATE payments_anomaly SET detail = %s WHERE kind = %s AND channel = %s AND reference = %s"

# the end of a statement: the refund that policy makes of the `anomaly`
_REFUND = """
INSERT INTO payments_refund (id, attempt_id, payment_id, amount_minor, reason, status, message, anomaly_id,
    next_query_at, query_count)
SELECT %s, %s, %s, %s, %s, 'requested', '', id, statement_timestamp() + make_interval(secs => %s), 0 FROM anomaly
RETURNING id
"""

_FILED_ANYWAY = """
WITH anomaly AS (
    INSERT INTO payments_anomaly (kind, channel, reference, payment_id, detail, resolution)
    VALUES (%s, %s, %s, %s, %s, '') RETURNING id
)
"""

FILE_AND_REFUND = _FILED_ANYWAY + _REFUND

# store the refund of an anomaly that waits for approval, once
_APPROVED = """
WITH anomaly AS (
    UPDATE payments_anomaly SET detail = detail || '{"approval": "given"}'
    WHERE id = %s AND resolved_at IS NULL AND detail ->> 'approval' = 'needed' RETURNING id
)
"""

APPROVE_REFUND = _APPROVED + _REFUND

# an open anomaly, by its number
RESOLVE = """
UPDATE payments_anomaly SET resolved_at = statement_timestamp(), resolution = %s
WHERE id = %s AND resolved_at IS NULL
"""

# by what it was filed under; what is final is left to a person
RESOLVE_NAMED = """
UPDATE payments_anomaly SET resolved_at = statement_timestamp(), resolution = %s
WHERE kind = %s AND channel = %s AND reference = %s AND resolved_at IS NULL AND NOT detail ? 'final'
"""

# what arrived before its payment, and counts from now on
RELEASE_HELD = """
UPDATE payments_notification
SET verdict = 'applied', detail = 'it came before its payment, and was applied after it'
WHERE channel = %s AND out_trade_no = %s AND verdict = 'held'
"""

# number a new status, for what follows from it
STAGE_EVENT = """
INSERT INTO payments_paymentevent (payment_id, number, status, paid_minor, refunded_minor, attempts)
VALUES (%s, %s, %s, %s, %s, 0)
"""

# what is stored under a notification's id
FIND_NOTIFICATION = (
    "SELECT digest, verdict, account_key FROM payments_notification WHERE channel = %s AND notification_id = %s"
)

# store a notification with what became of it; its unique id refuses a second one
STORE_NOTIFICATION = """
INSERT INTO payments_notification (channel, account_key, notification_id, event_type, headers, body, digest,
    verdict, out_trade_no, detail, attempts, processed_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, '', 1, statement_timestamp())
"""
