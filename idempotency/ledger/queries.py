"""SQL of the ledger, by name. Values are parameters, the clock is the database's.

Not through the models: a replay is one of these statements, and the ORM would triple its cost.
"""

# the committed entry of a scope and key
FIND = """
SELECT id, scope, key, fence, state, fingerprint, subject, handler, recovery_point, recovery_data::text,
response_status, response_headers::text, response_body, body_key_id,
coalesce(%s - extract(epoch FROM statement_timestamp() - finished_at), 0)::float8
FROM idempotency_ledgerentry WHERE scope = %s AND key = %s
"""

# the last entries of a range of keys, from the end
NUMBERED = """
SELECT key, fingerprint, response_status, response_headers::text,
extract(epoch FROM statement_timestamp() - finished_at)::float8
FROM idempotency_ledgerentry WHERE scope = %s AND key BETWEEN %s AND %s ORDER BY key DESC LIMIT %s
"""

# unfinished phased entries without a process that are due for another try, oldest first
STALLED = """
SELECT id, scope, key, fence, state, fingerprint, subject, handler, recovery_point, recovery_data::text,
response_status, response_headers::text, response_body, body_key_id,
coalesce(%s - extract(epoch FROM statement_timestamp() - finished_at), 0)::float8
FROM idempotency_ledgerentry JOIN LATERAL (
    SELECT count(*) FILTER (WHERE starts_with(owner, %s) AND outcome IN ('failed', 'lost')) AS broken,
        count(*) FILTER (WHERE starts_with(owner, %s)) AS asked,
        max(ended_at) AS ended_at
    FROM idempotency_ledgerattempt WHERE entry_id = idempotency_ledgerentry.id
) AS runs ON true
WHERE state <> 'finished' AND mode = 'phased' AND handler = ANY(%s) AND broken < %s
  AND coalesce(lease_until, ended_at)
      < statement_timestamp() - least(%s * power(2, least(asked, 20)), %s) * interval '1 second'
  AND id > %s
ORDER BY id LIMIT %s
"""

# the entry of an atomic call. No ON CONFLICT: an error skips the statements after it, so the COMMIT may go along
RECORD = """
INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence, subject,
    response_status, response_headers, response_body, body_key_id, finished_at)
VALUES (%s, %s, %s, 'atomic', 'finished', %s, %s, 1, %s, %s, %s, %s, %s, statement_timestamp())
"""

# hold duplicates off until the transaction ends, without waiting
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
LOCK = "SELECT pg_advisory_xact_lock(%s)"
# the bound of that wait, in place of the one of other statements, which may be shorter
WAIT_AT_MOST = "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true)"

# the running entry of a phased call and the first line of its history, in one commit
CLAIM = """
WITH entry AS (
    INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence,
        lease_until, response_headers, handler)
    VALUES (%s, %s, %s, 'phased', 'running', %s, %s, 1, statement_timestamp() + %s * interval '1 second', '{}', %s)
    ON CONFLICT (scope, key) DO NOTHING
    RETURNING id, owner, request_id
), history AS (
    INSERT INTO idempotency_ledgerattempt (entry_id, fence, owner, request_id, outcome)
    SELECT id, 1, owner, request_id, 'running' FROM entry
)
SELECT id FROM entry
"""

# another run of an uncertain entry, or of one whose lease is over
TAKE_OVER = """
WITH entry AS (
    UPDATE idempotency_ledgerentry SET state = 'running', fence = fence + 1, owner = %s, request_id = %s,
        lease_until = statement_timestamp() + %s * interval '1 second'
    WHERE id = %s AND fence = %s
      AND (state = 'uncertain' OR (state = 'running' AND lease_until <= statement_timestamp()))
    RETURNING id, fence, owner, request_id
), lost AS (
    UPDATE idempotency_ledgerattempt SET outcome = 'lost', ended_at = statement_timestamp()
    FROM entry WHERE entry_id = entry.id AND outcome = 'running'
), history AS (
    INSERT INTO idempotency_ledgerattempt (entry_id, fence, owner, request_id, outcome)
    SELECT id, fence, owner, request_id, 'running' FROM entry
)
SELECT fence FROM entry
"""

# the answer of a phased call. A run ends its entry and its own line of the history together, if it still is the
# latest; one without a subject must not wipe that of an earlier run
COMPLETE = """
WITH entry AS (
    UPDATE idempotency_ledgerentry SET state = 'finished', lease_until = NULL,
        subject = coalesce(nullif(%s, ''), subject), response_status = %s, response_headers = %s,
        response_body = %s, body_key_id = %s, finished_at = statement_timestamp()
    WHERE id = %s AND fence = %s AND state = 'running'
    RETURNING id, fence
), history AS (
    UPDATE idempotency_ledgerattempt SET outcome = 'finished', ended_at = statement_timestamp()
    FROM entry WHERE entry_id = entry.id AND idempotency_ledgerattempt.fence = entry.fence AND outcome = 'running'
)
SELECT id FROM entry
"""

# the outcome is unknown: nothing runs, and the next caller asks
SUSPEND = """
WITH entry AS (
    UPDATE idempotency_ledgerentry
    SET state = 'uncertain', lease_until = NULL, subject = coalesce(nullif(%s, ''), subject)
    WHERE id = %s AND fence = %s AND state = 'running'
    RETURNING id, fence
), history AS (
    UPDATE idempotency_ledgerattempt SET outcome = 'uncertain', ended_at = statement_timestamp()
    FROM entry WHERE entry_id = entry.id AND idempotency_ledgerattempt.fence = entry.fence AND outcome = 'running'
)
SELECT id FROM entry
"""

# a failed run: a retry may resume at once
DROP_LEASE = """
WITH entry AS (
    UPDATE idempotency_ledgerentry SET lease_until = statement_timestamp()
    WHERE id = %s AND fence = %s AND state = 'running'
    RETURNING id, fence
), history AS (
    UPDATE idempotency_ledgerattempt SET outcome = 'failed', ended_at = statement_timestamp()
    FROM entry WHERE entry_id = entry.id AND idempotency_ledgerattempt.fence = entry.fence AND outcome = 'running'
)
SELECT id FROM entry
"""

# a recovery point of the run that has the lease, which begins again
MARK = """
UPDATE idempotency_ledgerentry
SET recovery_point = %s, recovery_data = %s, subject = coalesce(nullif(%s, ''), subject),
    lease_until = statement_timestamp() + %s * interval '1 second'
WHERE id = %s AND fence = %s AND state = 'running'
"""

# longer leases, and for each run that still has its lease: if it got one. A run that was frozen has it until
# another takes over. A row that its own run has locked is passed over; both are locked, so that a lease which
# `DROP_LEASE` ends meanwhile stays ended
RENEW_LEASES = """
WITH asked AS (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::float8[]) AS asked (id, fence, seconds)
), held AS (
    SELECT entry.id, asked.seconds FROM idempotency_ledgerentry AS entry JOIN asked USING (id, fence)
    JOIN idempotency_ledgerattempt AS run ON run.entry_id = entry.id AND run.fence = entry.fence
    WHERE entry.state = 'running' AND run.outcome = 'running'
    FOR UPDATE OF entry, run SKIP LOCKED
), renewed AS (
    UPDATE idempotency_ledgerentry SET lease_until = clock_timestamp() + held.seconds * interval '1 second'
    FROM held WHERE idempotency_ledgerentry.id = held.id
    RETURNING idempotency_ledgerentry.id
)
SELECT entry.id, entry.fence, entry.id IN (SELECT id FROM renewed)
FROM idempotency_ledgerentry AS entry JOIN asked USING (id, fence)
JOIN idempotency_ledgerattempt AS run ON run.entry_id = entry.id AND run.fence = entry.fence
WHERE entry.state = 'running' AND run.outcome = 'running'
"""

# what a call is about, which a run says before its end; nothing wipes it
NOTE_SUBJECT = """
UPDATE idempotency_ledgerentry SET subject = coalesce(nullif(%s, ''), subject) WHERE id = %s AND fence = %s
"""

# drop an entry of which nothing can have begun outside: no recovery point, and its caller never heard 202. By its
# own run, or, if so asked, by another process when no process runs it any more
FORGET = """
WITH entry AS (
    DELETE FROM idempotency_ledgerentry
    WHERE id = %s AND fence = %s AND state = 'running' AND recovery_point = ''
      AND NOT EXISTS (
          SELECT FROM idempotency_ledgerattempt
          WHERE entry_id = idempotency_ledgerentry.id AND outcome = 'uncertain')
      AND CASE WHEN %s THEN handler = '' AND lease_until <= statement_timestamp()
          ELSE fence = 1 OR handler <> '' END
    RETURNING id
), history AS (
    DELETE FROM idempotency_ledgerattempt USING entry WHERE entry_id = entry.id
)
SELECT id FROM entry
"""

# the bytes of old answers
PURGE_BODIES = """
WITH old AS (
    SELECT id FROM idempotency_ledgerentry
    WHERE response_body IS NOT NULL AND state = 'finished'
      AND finished_at < statement_timestamp() - %s * interval '1 second'
    ORDER BY finished_at LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_ledgerentry SET response_body = NULL, body_key_id = '', purged_at = statement_timestamp()
FROM old WHERE idempotency_ledgerentry.id = old.id
"""

# old entries with their history and request log. Numbered in order, the oldest are the first: no more are read of
# a ledger of any size, and some among those may not be old yet
DROP_TOMBSTONES = """
WITH old AS (
    SELECT id, scope, key FROM idempotency_ledgerentry WHERE id IN (
        SELECT id FROM (
            SELECT id, finished_at FROM idempotency_ledgerentry WHERE state = 'finished' ORDER BY id LIMIT %s
        ) AS first WHERE finished_at < statement_timestamp() - %s * interval '1 second' ORDER BY id LIMIT %s
    ) FOR UPDATE SKIP LOCKED
), history AS (
    DELETE FROM idempotency_ledgerattempt USING old WHERE entry_id = old.id
), request_log AS (  -- by `keys.digest_of`
    DELETE FROM idempotency_arrival USING old
    WHERE digest = encode(sha256(convert_to(scope, 'UTF8') || '\\x00'::bytea || convert_to(key, 'UTF8')), 'hex')
)
DELETE FROM idempotency_ledgerentry USING old WHERE idempotency_ledgerentry.id = old.id
"""

# old rows of consumers' inboxes, of the first ones
DROP_MESSAGES = """
WITH first AS (
    SELECT id, consumed_at FROM idempotency_consumedmessage ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_consumedmessage USING first
WHERE idempotency_consumedmessage.id = first.id
  AND first.consumed_at < statement_timestamp() - %s * interval '1 second'
"""

# the row is missing where `flush` has emptied its table
NOTE_REAPING = """
INSERT INTO idempotency_ledgerepoch (id, value) VALUES (1, %s)
ON CONFLICT (id) DO UPDATE SET reaped_at = statement_timestamp()
"""

# seconds since the last reaping, if there are more than so many and something is due
OVERDUE = """
SELECT extract(epoch FROM statement_timestamp() - reaped_at)::float8 FROM idempotency_ledgerepoch
WHERE reaped_at < statement_timestamp() - %s * interval '1 second' AND (
    EXISTS (
        SELECT FROM idempotency_ledgerentry WHERE response_body IS NOT NULL AND state = 'finished'
          AND finished_at < statement_timestamp() - %s * interval '1 second'
    ) OR EXISTS (
        SELECT FROM idempotency_consumedmessage
        WHERE consumed_at < statement_timestamp() - %s * interval '1 second'
    )
)
"""

# where the name leads that all statements here use
SCHEMA_OF_LEDGER = """
SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pg_class.oid = to_regclass('idempotency_ledgerentry')
"""

# the part of names in Redis that a restored database renews
READ_EPOCH = "SELECT value FROM idempotency_ledgerepoch WHERE id = 1"

# random, no counter: the successor of a restored epoch may have been used before
RENEW_EPOCH = """
INSERT INTO idempotency_ledgerepoch (id, value) VALUES (1, %s)
ON CONFLICT (id) DO UPDATE SET value = excluded.value, since = statement_timestamp()
"""
