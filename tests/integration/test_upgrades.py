"""Data of the first version's schema, brought forward by every migration since: nothing is lost, and it serves."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import ConnectionHandler, IntegrityError, InternalError, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from idempotency.ledger.claiming import UNIQUE
from idempotency.models import LedgerEntry
from payments.models import Attempt, JournalLine, Observation, Payment, Refund
from shop.models import Order, OrderItem, Product

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

FIRST = [("idempotency", "0001_initial"), ("payments", "0001_initial"), ("shop", "0001_initial")]
TURNED = import_module("idempotency.migrations.0003_unique_key_first")
LONG_AGO = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def former(django_db_setup: None, django_db_blocker: Any) -> Iterator[BaseDatabaseWrapper]:
    """A database of its own, under the alias `former`, filled under the first schema and brought forward."""
    with django_db_blocker.unblock(), fresh_database() as wrapper:
        fill(migrate_to_first(wrapper))
        call_command("migrate", database="former", verbosity=0)
        yield wrapper


@contextmanager
def fresh_database() -> Iterator[BaseDatabaseWrapper]:
    name = f"upgrade_{uuid.uuid4().hex[:12]}"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    wrapper = connection.copy(alias="former")
    wrapper.settings_dict |= {"NAME": name}
    connections["former"] = wrapper
    try:
        yield wrapper
    finally:
        wrapper.close()
        del connections["former"]
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def migrate_to_first(former: BaseDatabaseWrapper) -> Any:
    """The first schema; its models."""
    executor = MigrationExecutor(former)
    theirs = [node for node in executor.loader.graph.leaf_nodes() if node[0] not in dict(FIRST)]
    executor.migrate([*theirs, *FIRST])
    return MigrationExecutor(former).loader.project_state([*theirs, *FIRST]).apps


def fill(apps: Any) -> None:
    """An order that was paid by Alipay and in part given back, with a key."""

    def make(app: str, model: str, **fields: Any) -> Any:
        return apps.get_model(app, model).objects.using("former").create(**fields)

    money = {"currency": "CNY", "amount_minor": 1990}
    user = make("auth", "User", username="ann")
    product = make("shop", "Product", sku="mug", name="Mug", price_minor=1990, stock=7)
    order = make(
        "shop",
        "Order",
        user=user,
        status="paid",
        total_minor=1990,
        currency="CNY",
        expires_at=LONG_AGO,
        paid_at=LONG_AGO,
    )
    make("shop", "OrderItem", order=order, product=product, sku="mug", name="Mug", quantity=1, price_minor=1990)
    payment = make(
        *("payments", "Payment"),
        **money,
        **{"order_id": order.id, "owner": user, "status": "partially_refunded", "version": 3},
        **{"paid_minor": 1990, "refunded_minor": 90},
    )
    attempt = make(
        *("payments", "Attempt"),
        **money,
        **{"payment": payment, "channel": "alipay", "merchant": "2088", "status": "succeeded"},
        **{"description": "Mug", "expires_at": LONG_AGO, "submitted_at": LONG_AGO},
    )
    fact = {"channel": "alipay", "merchant": "2088", "currency": "CNY", "attempt": attempt, "credited": True}
    make("payments", "Observation", provider_txn_id="t1", kind="paid", amount_minor=1990, source="query", **fact)
    make("payments", "Observation", provider_txn_id="r1", kind="refunded", amount_minor=90, source="query", **fact)
    make(
        "payments", "Refund", attempt=attempt, payment=payment, amount_minor=90, reason="late", status="succeeded"
    )
    make(
        *("idempotency", "LedgerEntry"),
        **{"scope": f"user:{user.pk} POST orders", "key": "k1", "fingerprint": b"\0" * 32, "mode": "atomic"},
        **{"state": "finished", "owner": "p1", "fence": 1},
        **{"response_status": 201, "response_body": b"{}", "finished_at": LONG_AGO},
    )


def test_data_of_the_first_version_is_served_by_this_one(former: BaseDatabaseWrapper) -> None:
    order = Order.objects.using("former").get()
    assert (order.status, order.total_minor) == ("paid", 1990)
    assert [item.sku for item in OrderItem.objects.using("former").all()] == ["mug"]
    assert Product.objects.using("former").get().stock == 7
    payment = Payment.objects.using("former").get()
    assert (payment.order_id, payment.status, payment.version, payment.paid_minor) == (
        order.id,
        "partially_refunded",
        3,
        1990,
    )
    assert (payment.refunded_minor, payment.reserved_minor) == (90, 0)
    assert Attempt.objects.using("former").get().method == "page"
    assert Refund.objects.using("former").get().status == "succeeded"
    entry = LedgerEntry.objects.using("former").get()
    assert (entry.key, entry.state, entry.response_status) == ("k1", "finished", 201)


def test_what_was_known_before_the_journal_is_in_it(former: BaseDatabaseWrapper) -> None:
    lines = JournalLine.objects.using("former").order_by("id").values_list("account", "amount_minor")
    assert sorted(lines) == [
        ("orders", -1990),
        ("orders", 90),
        ("provider:alipay:2088", -90),
        ("provider:alipay:2088", 1990),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE payments_payment SET status = 'pending', paid_minor = 0, version = version + 1",
        "UPDATE payments_observation SET amount_minor = 1",
        "DELETE FROM payments_journalentry",
        "UPDATE shop_order SET status = 'pending', paid_at = NULL",
    ],
    ids=["unpaid", "another amount", "no journal", "unpaid order"],
)
def test_old_rows_are_guarded_like_new_ones(former: BaseDatabaseWrapper, statement: str) -> None:
    with former.cursor() as cursor, pytest.raises((IntegrityError, InternalError)):
        cursor.execute(statement)
    assert Observation.objects.using("former").filter(amount_minor=1990).exists()
    assert Order.objects.using("former").get().status == "paid"


class TestTheLedgersIndexIsTurnedRound:
    """While it is in use: twins are told apart at every moment of it, in the words of either version's code."""

    @pytest.fixture(autouse=True)
    def _back(self, former: BaseDatabaseWrapper) -> None:
        """The way back, which each of these tests begins with."""
        to(former, "0002_history_tombstones_recovery_inbox")
        assert (columns_of(former, UNIQUE), columns_of(former, TURNED.BESIDE)) == (("scope", "key"), ())
        twins_are_told_apart(former)

    def test_at_once(self, former: BaseDatabaseWrapper) -> None:
        to(former, "0003_unique_key_first")
        assert (columns_of(former, UNIQUE), columns_of(former, TURNED.BESIDE)) == (("key", "scope"), ())
        twins_are_told_apart(former)

    def test_to_look_at_its_sql_changes_nothing(self, former: BaseDatabaseWrapper) -> None:
        told = StringIO()
        call_command("sqlmigrate", "idempotency", "0003", database="former", stdout=told)
        assert "CANNOT BE WRITTEN AS SQL" in told.getvalue()
        assert (columns_of(former, UNIQUE), columns_of(former, TURNED.BESIDE)) == (("scope", "key"), ())

    def test_killed_while_it_builds(self, former: BaseDatabaseWrapper) -> None:
        """What it leaves is an index that PostgreSQL does not trust; it is not taken for the new one."""
        with another_session(former) as writer:
            writer.execute("UPDATE idempotency_ledgerentry SET owner = owner")  # it waits for whoever writes
            with former.cursor() as cursor:
                cursor.execute("SET lock_timeout = '20ms'")
            with pytest.raises(OperationalError, match="lock timeout"):
                to(former, "0003_unique_key_first")
        with former.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
            cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass", [TURNED.BESIDE])
            assert cursor.fetchone() == (False,)
        twins_are_told_apart(former)
        to(former, "0003_unique_key_first")
        assert (columns_of(former, UNIQUE), columns_of(former, TURNED.BESIDE)) == (("key", "scope"), ())
        twins_are_told_apart(former)

    def test_turned_away_with_the_new_index_built(
        self, former: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader that does not end makes it give up, so that requests do not queue up behind it."""
        monkeypatch.setattr(TURNED, "LOCK_WAIT", "20ms")
        with another_session(former) as reader:
            reader.execute("SELECT count(*) FROM idempotency_ledgerentry")
            with pytest.raises(OperationalError, match="lock timeout"):
                to(former, "0003_unique_key_first")
        assert (columns_of(former, UNIQUE), columns_of(former, TURNED.BESIDE)) == (
            ("scope", "key"),
            ("key", "scope"),
        )
        twins_are_told_apart(former)
        with former.cursor() as cursor:
            cursor.execute("SELECT %s::regclass::oid", [TURNED.BESIDE])
            (built,) = cursor.fetchone()
            to(former, "0003_unique_key_first")
            cursor.execute("SELECT %s::regclass::oid", [UNIQUE])
            assert cursor.fetchone() == (built,)  # it was not built again
        twins_are_told_apart(former)


def test_a_database_of_another_kind_beside_the_ledgers_takes_its_tables_too() -> None:
    beside = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})[
        "default"
    ]
    beside.alias = "beside"
    connections["beside"] = beside
    try:
        call_command("migrate", "idempotency", database="beside", verbosity=0)
        assert LedgerEntry._meta.db_table in beside.introspection.table_names()
    finally:
        beside.close()
        del connections["beside"]


def to(former: BaseDatabaseWrapper, migration: str) -> None:
    MigrationExecutor(former).migrate([("idempotency", migration)])


def columns_of(former: BaseDatabaseWrapper, index: str) -> tuple[str, ...]:
    with former.cursor() as cursor:
        found: tuple[str, ...] = TURNED._columns(cursor, index)
    return found


@contextmanager
def another_session(former: BaseDatabaseWrapper) -> Iterator[psycopg.Connection]:
    """Inside of a transaction until the end."""
    with psycopg.connect(**former.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as session:
        yield session
        session.rollback()


def twins_are_told_apart(former: BaseDatabaseWrapper) -> None:
    """The second of one scope and key: an atomic one by the constraint's name, a phased one by ON CONFLICT."""
    twin = (
        "INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence,"
        " response_headers) SELECT scope, key, '', 'atomic', 'running', '', '', 1, '{}' FROM idempotency_ledgerentry"
    )
    with former.cursor() as cursor:
        with pytest.raises(IntegrityError) as lost:
            cursor.execute(twin)
        assert lost.value.__cause__.diag.constraint_name == UNIQUE  # type: ignore[union-attr]
        for columns in ("scope, key", "key, scope"):
            cursor.execute(f"{twin} ON CONFLICT ({columns}) DO NOTHING RETURNING id")
            assert cursor.fetchall() == []
