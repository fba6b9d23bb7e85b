"""Operators' audit lines are only added to, and no account that they name is deleted: it would take them along."""

from django.db import migrations

REFUSE = """
CREATE FUNCTION payments_refuse_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: audit lines stay, and so does the account that they name', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'audit_is_append_only';
END;
$$;
CREATE TRIGGER payments_audit_stays BEFORE UPDATE OR DELETE ON django_admin_log
    FOR EACH ROW EXECUTE FUNCTION payments_refuse_audit();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("payments", "0010_one_index_each"),
    ]

    operations = [migrations.RunSQL(REFUSE, "DROP FUNCTION payments_refuse_audit() CASCADE;")]
