"""Past one primary: the plan holds what the schema says, and the shop works where its tables stand elsewhere.

No Citus is here. What a plain PostgreSQL can judge of it is judged by one: its hash partitions ask the same of unique
keys, a schema can have another name than `public`, and a view can stand where a node has a table with its shard's
number behind its name. docs/operations.md says what is left untried.
"""

from collections.abc import Callable, Mapping
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from payments.models import Attempt, JournalEntry, PaymentEvent
from shop.distribution import (
    PLAN,
    Distributed,
    ForeignKey,
    Local,
    Placement,
    Table,
    obstacles,
    read_schema,
)
from shop.models import Order, Product
from tests.integration.payments.conftest import fold, order_of, paid, payment_of, refunded
from tests.integration.shop.conftest import Caller

# what `PLAN` says is in the ledger's way, out of it: what a migration would do
LEDGER_BY_KEY = """
ALTER TABLE idempotency_ledgerattempt ADD COLUMN key varchar(255);
UPDATE idempotency_ledgerattempt a SET key = e.key FROM idempotency_ledgerentry e WHERE e.id = a.entry_id;
ALTER TABLE idempotency_ledgerattempt ALTER key SET NOT NULL,
    DROP CONSTRAINT idempotency_ledgerat_entry_id_e58b200f_fk_idempoten,
    DROP CONSTRAINT idempotency_ledgerattempt_pkey,
    DROP CONSTRAINT ledger_attempt_one_per_fence;
ALTER TABLE idempotency_ledgerentry DROP CONSTRAINT idempotency_ledgerentry_pkey, ADD PRIMARY KEY (key, id);
ALTER TABLE idempotency_ledgerattempt ADD PRIMARY KEY (key, id), ADD UNIQUE (key, entry_id, fence),
    ADD FOREIGN KEY (key, entry_id) REFERENCES idempotency_ledgerentry (key, id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE idempotency_consumedmessage DROP CONSTRAINT idempotency_consumedmessage_pkey,
    ADD PRIMARY KEY (message_id, id);
"""

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


def sql(statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def schema() -> dict[str, Table]:
    with connection.cursor() as cursor:
        return read_schema(cursor)


@pytest.mark.django_db
def test_the_plan_says_what_is_in_the_way_and_nothing_else() -> None:
    """Every table of ours and of others is in it, and none that is not there."""
    declared = {
        name: placement.in_the_way
        for name, placement in PLAN.items()
        if isinstance(placement, Distributed) and placement.in_the_way
    }
    assert obstacles(schema(), PLAN) == declared


@pytest.mark.django_db
def test_an_operator_is_told_the_plan_and_a_table_that_it_does_not_know() -> None:
    told = StringIO()
    call_command("distribution", stdout=told)
    assert "idempotency_ledgerentry: by key, with ledger (random" in told.getvalue()
    assert told.getvalue().count("    in the way: ") == sum(
        len(placement.in_the_way) for placement in PLAN.values() if isinstance(placement, Distributed)
    )
    sql("CREATE TABLE of_another_app (id bigint PRIMARY KEY)")
    with pytest.raises(CommandError, match=r"knows nothing of this: of_another_app: is not in the plan\.$"):
        call_command("distribution", stdout=told)


@pytest.mark.django_db
def test_postgresql_judges_unique_keys_as_the_plan_does() -> None:
    """Its partitions by hash keep uniqueness in each of them alone, as shards do."""
    judged = {}
    for name, placement in PLAN.items():
        if isinstance(placement, Distributed):
            try:
                with transaction.atomic():
                    sql(f"CREATE TABLE judged (LIKE {name} INCLUDING ALL) PARTITION BY HASH ({placement.column})")
                    transaction.set_rollback(True)
            except DatabaseError:
                judged[name] = "refused"
    assert judged.keys() == {
        name for name, table in PLAN.items() if isinstance(table, Distributed) and table.in_the_way
    }
    sql(LEDGER_BY_KEY)
    assert obstacles(schema(), PLAN) == {}
    for name in judged:
        sql(f"CREATE TABLE judged_{name} (LIKE {name} INCLUDING ALL) PARTITION BY HASH ({PLAN[name].column})")


ORDERS = Table(columns=frozenset({"id", "buyer"}), primary_key=("buyer", "id"))
BY_BUYER = Distributed(column="buyer", group="buyers", because="test")


@pytest.mark.parametrize(
    ("items", "placed", "told"),
    [
        pytest.param(Table(columns=frozenset({"buyer"}), primary_key=("buyer",)), BY_BUYER, (), id="sound"),
        pytest.param(
            Table(columns=frozenset({"id", "buyer"}), primary_key=("id",), unique=(("id", "buyer"), ("id",))),
            BY_BUYER,
            ("primary key (id)", "unique (id)"),
            id="keys",
        ),
        pytest.param(Table(columns=frozenset({"id"})), BY_BUYER, ("has no column buyer",), id="column"),
        pytest.param(Table(columns=frozenset()), None, ("is not in the plan",), id="unplanned"),
        pytest.param(None, BY_BUYER, ("is in the plan and not in the database",), id="stale"),
    ],
)
def test_a_planted_violation_of_a_key_is_told(
    items: Table | None, placed: Placement | None, told: tuple[str]
) -> None:
    tables = {"orders": ORDERS, **({"items": items} if items else {})}
    plan = {"orders": BY_BUYER, **({"items": placed} if placed else {})}
    assert obstacles(tables, plan) == ({"items": told} if told else {})


@pytest.mark.parametrize(
    ("columns", "here", "there", "sound"),
    [
        pytest.param(("buyer", "order_id"), BY_BUYER, BY_BUYER, True, id="together"),
        pytest.param(("order_id", "buyer"), BY_BUYER, BY_BUYER, False, id="crosswise"),
        pytest.param(
            ("buyer", "order_id"), BY_BUYER, Distributed(column="buyer", group="x", because=""), False, id="apart"
        ),
        pytest.param(("buyer", "order_id"), BY_BUYER, Local(because=""), False, id="to-local"),
        pytest.param(("buyer", "order_id"), Local(because=""), BY_BUYER, False, id="from-local"),
    ],
)
def test_a_planted_violation_of_a_foreign_key_is_told(
    columns: tuple[str, str], here: Placement, there: Placement, sound: bool
) -> None:
    link = ForeignKey(columns=columns, table="orders", keys=("buyer", "id"))
    items = Table(columns=frozenset({"buyer", "order_id"}), foreign_keys=(link,))
    told = {"items": (f"foreign key ({', '.join(columns)}) to orders (buyer, id)",)}
    plan: Mapping[str, Placement] = {"orders": there, "items": here}
    assert obstacles({"orders": ORDERS, "items": items}, plan) == ({} if sound else told)


@pytest.fixture
def shopper(db: None) -> User:
    return User.objects.create_user("ann")


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(sku="mug", name="Mug", price_minor=1990, stock=100)


def test_a_shop_works_in_a_schema_of_its_own_under_the_names_of_a_node(
    open_attempt: Callable[..., Attempt], shopper: User
) -> None:
    """Payment, refund, journal, an order with a key and its replay; and what a trigger refuses is refused still."""
    sql("ALTER SCHEMA public RENAME TO shop_a; SET LOCAL search_path = shop_a")
    sql(AS_ON_A_NODE)
    attempt = open_attempt()
    fold(paid(attempt), refunded(attempt, 990, "a" * 32), source="query")
    sql("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")  # looked at now and not at the commit
    assert (payment_of(attempt).status, order_of(attempt).status) == ("partially_refunded", "paid")
    assert (JournalEntry.objects.count(), PaymentEvent.objects.count()) == (2, 2)

    caller = Caller(shopper)
    first, again = caller.order(key="one"), caller.order(key="one")
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (201, 201, "true")
    assert (again.content, Order.objects.count()) == (first.content, 2)
    for statement, refused in STILL_REFUSED.items():
        with pytest.raises(DatabaseError, match=refused), transaction.atomic():
            sql(f"{statement}; SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.django_db
def test_what_a_node_would_run_differently_is_known() -> None:
    """Triggers for each row alone; the functions that ask for their table's name only tell it."""
    assert sql("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgtype::int & 1 = 0") == []
    asking = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosrc ~ 'TG_(TABLE|REL)'"
    assert sql(f"{asking} ORDER BY 1") == [("payments_refuse",)]
