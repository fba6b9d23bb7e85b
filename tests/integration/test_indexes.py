"""Indexes that nobody reads cost every write of a row."""

import pytest
from django.apps import apps
from django.db import connection

# whole indexes of one kind: the columns of the first, which keeps nothing unique, are those that the second begins with
_BEGINNINGS = """
SELECT one.indexrelid::regclass::text, longer.indexrelid::regclass::text
FROM pg_index one
JOIN pg_index longer ON longer.indrelid = one.indrelid AND longer.indexrelid <> one.indexrelid
JOIN pg_class of_one ON of_one.oid = one.indexrelid
JOIN pg_class of_longer ON of_longer.oid = longer.indexrelid AND of_longer.relam = of_one.relam
WHERE one.indrelid = ANY (%s::regclass[]) AND NOT one.indisunique
    AND one.indpred IS NULL AND one.indexprs IS NULL AND longer.indpred IS NULL AND longer.indexprs IS NULL
    AND starts_with(longer.indkey::text || ' ', one.indkey::text || ' ')
    AND starts_with(longer.indclass::text || ' ', one.indclass::text || ' ')
"""


@pytest.mark.django_db
def test_no_index_is_the_beginning_of_another() -> None:
    ours = [apps.get_app_config(name) for name in ("idempotency", "payments", "shop")]
    tables = [model._meta.db_table for app in ours for model in app.get_models()]
    with connection.cursor() as cursor:
        cursor.execute(_BEGINNINGS, [tables])
        assert cursor.fetchall() == []
