-- Before citus_schema_distribute, once for each shop's schema, by the role that owns it:
--   psql "$DATABASE_URL" -f deploy/citus/prepare.sql
--
-- On a node of Citus a table has the number of its shard behind its name, and a trigger is told that name. The function
-- below decided by the name whether it looks at an entry of the journal or at a line of one; now it decides by the row.
-- Everything else of the schema goes as it is. It may be run again, and is harmless on a plain PostgreSQL.
CREATE OR REPLACE FUNCTION payments_journal_adds_up() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint := coalesce(to_jsonb(NEW) -> 'entry_id', to_jsonb(NEW) -> 'id');
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
