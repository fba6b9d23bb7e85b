"""`deploy/citus.sql` fits the schema, and the shop works where its tables are elsewhere.

No Citus runs here. PostgreSQL judges what it can: its hash partitions ask the same of unique keys, a schema can have
another name than `public`, and a view can stand where a node has a table with a shard's number behind its name.
docs/how-to/citus.md lists what is untried.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction

from payments.models import Attempt, JournalEntry, PaymentEvent
from shop.models import Order, Product
from tests.emptying import rows
from tests.integration.payments.conftest import fold, new_order, open_attempt, order_of, paid, payment_of, refunded
from tests.integration.shop.conftest import Caller

FILE = (Path(__file__).resolve().parents[3] / "deploy" / "citus.sql").read_text()
KEYS = FILE.partition("-- keys: begin")[2].partition("-- keys: end")[0]
SPREAD = dict(re.findall(r"^SELECT create_distributed_table\('(\w+)', '(\w+)'", FILE, re.MULTILINE))

FOREIGN_KEYS = """
SELECT c.conrelid::regclass::text, c.confrelid::regclass::text, ARRAY(
    SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (number, nth)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number
    JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = c.confkey[k.nth] AND b.attname = a.attname)
FROM pg_constraint c, unnest(%s::regclass[]) AS spread (name)
WHERE c.contype = 'f' AND spread.name IN (c.conrelid, c.confrelid)
"""

__all__ = ["new_order", "open_attempt"]  # fixtures

# every table under its shard's name, and a view where Citus has the table that the program names
AS_ON_A_NODE = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class
            WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace LOOP
        EXECUTE format('ALTER TABLE %I RENAME TO %I', name, name || '_102008');
        EXECUTE format('CREATE VIEW %I AS SELECT * FROM %I', name, name || '_102008');
    END LOOP;
END;
$$
"""


STILL_REFUSED = {
    "UPDATE payments_journalline SET amount_minor = 1": "what is known about money stays",
    "INSERT INTO payments_journalline (entry_id, account, amount_minor, currency) "
    "SELECT max(id), 'x', 5, 'CNY' FROM payments_journalentry": "does not add up to zero",
    "UPDATE shop_order SET status = 'pending', paid_at = NULL WHERE status = 'paid'": "is not a step",
}


@pytest.mark.django_db
def test_postgresql_takes_the_spread_tables_as_its_own_partitions() -> None:
    """Hash partitions ask of unique keys what shards ask."""

    def refused() -> set[str]:
        found = set()
        for table, column in SPREAD.items():
            try:
                with transaction.atomic():
                    rows(f"CREATE TABLE judged (LIKE {table} INCLUDING ALL) PARTITION BY HASH ({column})")
                    transaction.set_rollback(True)
            except DatabaseError:
                found.add(table)
        return found

    assert refused() == SPREAD.keys() - {"django_session"}
    rows(KEYS)
    assert refused() == set()
    # spread tables refer to spread tables alone, column by column, and no other table refers to one of them
    assert {(table, other, "key" in columns) for table, other, columns in rows(FOREIGN_KEYS, list(SPREAD))} == {
        ("idempotency_ledgerattempt", "idempotency_ledgerentry", True)
    }


@pytest.fixture
def shopper(db: None) -> User:
    return User.objects.create_user("ann")


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(sku="mug", name="Mug", price_minor=1990, stock=100)


def test_a_shop_works_in_a_schema_of_its_own_under_the_names_of_a_node(
    open_attempt: Callable[..., Attempt], shopper: User
) -> None:
    """Payment, refund, journal, a keyed order and its replay work; triggers still refuse."""
    rows("ALTER SCHEMA public RENAME TO shop_a; SET LOCAL search_path = shop_a")
    rows(AS_ON_A_NODE)
    attempt = open_attempt()
    fold(paid(attempt), refunded(attempt, 990, "a" * 32), source="query")
    rows("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")  # looked at now and not at the commit
    assert (payment_of(attempt).status, order_of(attempt).status) == ("partially_refunded", "paid")
    assert (JournalEntry.objects.count(), PaymentEvent.objects.count()) == (2, 2)

    caller = Caller(shopper)
    first, again = caller.order(key="one"), caller.order(key="one")
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (201, 201, "true")
    assert (again.content, Order.objects.count()) == (first.content, 2)
    for statement, refused in STILL_REFUSED.items():
        with pytest.raises(DatabaseError, match=refused), transaction.atomic():
            rows(f"{statement}; SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.django_db
def test_what_a_node_would_run_differently_is_known() -> None:
    """Triggers are for each row; no function asks for its table's name, a shard's there."""
    assert rows("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgtype::int & 1 = 0") == []
    asking = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosrc ~ 'TG_(TABLE|REL)'"
    assert rows(asking) == []
