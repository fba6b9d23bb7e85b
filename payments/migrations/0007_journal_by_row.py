"""The journal's sum is looked at by the row and not by the table's name: on a node of a distributed PostgreSQL a
table has the number of its shard behind its name, and a trigger is told that one.
"""

from django.db import migrations

_FUNCTION = """
CREATE OR REPLACE FUNCTION payments_journal_adds_up() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint := {number};
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
"""
_BY_ROW = "coalesce(to_jsonb(NEW) -> 'entry_id', to_jsonb(NEW) -> 'id')"
_BY_NAME = "CASE TG_TABLE_NAME WHEN 'payments_journalentry' THEN to_jsonb(NEW) -> 'id' ELSE to_jsonb(NEW) -> 'entry_id' END"


class Migration(migrations.Migration):
    dependencies = [("payments", "0006_indexes")]

    operations = [
        # replaced in place: the code of either version writes the same journal before and after it
        migrations.RunSQL(_FUNCTION.format(number=_BY_ROW), _FUNCTION.format(number=_BY_NAME)),
    ]
