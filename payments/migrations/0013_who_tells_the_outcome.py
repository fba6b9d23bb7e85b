"""Telling an outcome by hand has a permission of its own; and an audit line outlives the model that it is about.

Django's `remove_stale_contenttypes` deletes the content types of models that are gone, and sets the lines' reference
to them to NULL: what a line says of who, when, what and why stays as it was. Of a model whose table is there, none.
"""

from importlib import import_module

from django.db import migrations

STAYS = """
CREATE OR REPLACE FUNCTION payments_refuse_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.content_type_id IS NULL
        AND to_jsonb(NEW) - 'content_type_id' = to_jsonb(OLD) - 'content_type_id'
        AND NOT EXISTS (
            SELECT FROM django_content_type AS about
            WHERE about.id = OLD.content_type_id
            AND to_regclass(quote_ident(about.app_label || '_' || about.model)) IS NOT NULL)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% of % is refused: audit lines stay, and so does the account that they name', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'audit_is_append_only';
END;
$$;
"""
BEFORE = import_module("payments.migrations.0011_audit_lines_stay").REFUSE.partition("CREATE TRIGGER")[0]


class Migration(migrations.Migration):
    dependencies = [("payments", "0012_steps_and_beginnings")]

    operations = [
        migrations.AlterModelOptions(
            name="payment",
            options={
                "ordering": ("-id",),
                "permissions": [
                    ("query_payment", "Can ask the provider about a payment"),
                    ("refund_payment", "Can refund a payment"),
                    ("tell_outcome", "Can tell what became of a payment or refund"),
                ],
            },
        ),
        migrations.RunSQL(STAYS, BEFORE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")),
    ]
