"""Indexes that nobody reads cost every write of a row."""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.integration.test_upgrades import fresh_database

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


@pytest.mark.django_db(transaction=True)
def test_who_goes_back_to_an_earlier_version_gets_its_indexes_again() -> None:
    with fresh_database() as wrapper:
        call_command("migrate", database="former", verbosity=0)
        assert "shop_order_user_id_00aba627" not in indexes_of(wrapper, "shop_order")
        call_command("migrate", "payments", "0009", database="former", verbosity=0)
        call_command("migrate", "shop", "0005", database="former", verbosity=0)
        assert "shop_order_user_id_00aba627" in indexes_of(wrapper, "shop_order")
        number = "payments_notification_out_trade_no_89278d8d"
        assert {number, f"{number}_like"} < indexes_of(wrapper, "payments_notification")
        call_command("migrate", database="former", verbosity=0)
        assert number not in indexes_of(wrapper, "payments_notification")
        assert time_limit_of(wrapper) == time_limit_of(connections["default"])


def indexes_of(wrapper: BaseDatabaseWrapper, table: str) -> set[str]:
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", [table])
        return {name for (name,) in cursor.fetchall()}


def time_limit_of(wrapper: BaseDatabaseWrapper) -> str:
    with wrapper.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])
