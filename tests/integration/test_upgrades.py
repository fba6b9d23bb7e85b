"""A database of the version before, brought forward: nothing is lost, and its schema is that of a fresh one.

The dump was made on 2026-11-24 under commit f23fa6b by its `tests.schema.written`, in a test that took an order through a
payment, half a refund, a second payment, a notification and a refund that waits, with an audit entry; of each table
that this left empty it created a row. Its last statement records the migrations of that day.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.apps import apps as django_apps
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from idempotency.models import LedgerEntry
from payments.models import Payment
from payments.order_keys import order_columns
from shop.models import Order
from tests.processes import a_database
from tests.schema import definitions

pytestmark = pytest.mark.usefixtures("transactional_db")  # the alias is no one else's, but the way to it is

SINCE = import_module("payments.migrations.0002_squashed_0015_notification_by_time")
OF_NOVEMBER = Path(__file__).with_name("data") / "payments_and_shop_2026_11_24.sql"
APPS = ("payments", "shop")
LONG_AGO = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def turned_away(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[BaseDatabaseWrapper, list[str]]]:
    """A database under the alias `former`, as the version before wrote it, and what it refuses after a lock time-out."""
    first = SINCE.Migration.operations[0]
    with django_db_blocker.unblock(), fresh_database() as wrapper, pytest.MonkeyPatch.context() as patched:
        restore(wrapper)
        patched.setattr(first, "sql", first.sql.replace(SINCE.LOCK_WAIT, "20ms"))
        with another_session(wrapper) as writer:
            writer.execute("UPDATE payments_notification SET detail = detail")
            with pytest.raises(OperationalError, match="lock timeout"):
                call_command("migrate", database="former", verbosity=0)
            refusals = [refused(wrapper, statement) for statement in REFUSED]
        yield wrapper, refusals


@pytest.fixture(scope="module")
def former(turned_away: tuple[BaseDatabaseWrapper, list[str]], django_db_blocker: Any) -> BaseDatabaseWrapper:
    """The same, brought forward."""
    with django_db_blocker.unblock():
        call_command("migrate", database="former", verbosity=0)
        LedgerEntry.objects.using("former").create(
            **{"scope": "user:1 POST orders", "key": "k1", "fingerprint": b"\0" * 32, "mode": "atomic"},
            **{"state": "finished", "owner": "p1", "fence": 1},
            **{"response_status": 201, "response_body": b"{}", "finished_at": LONG_AGO},
        )
    return turned_away[0]


def restore(former: BaseDatabaseWrapper) -> None:
    """Fill an empty database with payments and shop as they were before their guards were constraints of models."""
    others = {app for app, _ in MigrationExecutor(former).loader.graph.leaf_nodes()} - {*APPS}
    for app in sorted(others):
        call_command("migrate", app, database=former.alias, verbosity=0)
    with former.cursor() as cursor:
        cursor.execute(OF_NOVEMBER.read_text())


@contextmanager
def fresh_database(alias: str = "former") -> Iterator[BaseDatabaseWrapper]:
    with a_database() as name:
        wrapper = connection.copy(alias=alias)
        wrapper.settings_dict |= {"NAME": name}
        connections[alias] = wrapper
        try:
            yield wrapper
        finally:
            wrapper.close()
            del connections[alias]


def test_every_row_is_served(former: BaseDatabaseWrapper) -> None:
    models = [model for app in APPS for model in django_apps.get_app_config(app).get_models()]
    read = {model.__name__: len(model._default_manager.using("former").all()) for model in models}
    since = {"Delivery", "ProviderCall"}
    assert {name for name, count in read.items() if not count} == since, "only tables made since are empty"
    payment = Payment.objects.using("former").get(status="partially_refunded")
    assert (payment.paid_minor, payment.refunded_minor, payment.reserved_minor) == (1990, 990, 100)
    assert Order.objects.using("former").get(pk=payment.order_id).status == "paid"
    assert Payment.objects.using("former").get(**order_columns(payment.order_id)) == payment


def test_the_version_before_may_go_on_beside_it(former: BaseDatabaseWrapper) -> None:
    with transaction.atomic(using="former"), former.cursor() as cursor:
        cursor.execute(
            "INSERT INTO payments_payment (id, order_id, amount_minor, currency, status, version, paid_minor,"
            " refunded_minor, reserved_minor) VALUES (%s, %s, 1, 'CNY', 'pending', 1, 0, 0, 0)",
            [(key := uuid4()), key],
        )
        assert Payment.objects.using("former").get(**order_columns(key)).order_no == key.hex
        transaction.set_rollback(True, using="former")


def test_it_ends_with_the_schema_of_a_fresh_one(former: BaseDatabaseWrapper) -> None:
    with former.cursor() as theirs, connection.cursor() as ours:
        found, expected = definitions(theirs, "."), definitions(ours, ".")
    assert found[0] == expected[0]
    assert {plain(definition) for definition in found[1]} == {plain(definition) for definition in expected[1]}


def test_a_database_with_some_of_the_replaced_migrations_is_refused() -> None:
    with fresh_database("between") as wrapper:
        call_command("migrate", database="between", verbosity=0)
        recorder, name = MigrationRecorder(wrapper), SINCE.__name__.rsplit(".", 1)[1]
        recorder.record_unapplied("payments", name)
        recorder.record_unapplied(*SINCE.Migration.replaces[-1])
        with pytest.raises(SystemCheckError, match=f"(?s)E018.* payments.{name} .*commit 502e396c"):
            call_command("migrate", database="between", verbosity=0, skip_checks=False)


def test_undone_it_leaves_nothing_and_may_come_again() -> None:
    with fresh_database("undone") as wrapper, wrapper.cursor() as cursor:
        call_command("migrate", database="undone", verbosity=0)
        there = definitions(cursor, "^(payments|shop)_")
        for app in reversed(APPS):
            call_command("migrate", app, "zero", database="undone", verbosity=0)
        cursor.execute("SELECT proname FROM pg_proc WHERE proname ~ %s", ["^(payment|delivery|provider|order)_"])
        assert cursor.fetchall() == []
        call_command("migrate", database="undone", verbosity=0)
        assert definitions(cursor, "^(payments|shop)_") == there


def test_it_locks_tables_in_the_order_of_settlement() -> None:
    """Else it and a settlement under way wait for each other."""
    with fresh_database("ordered") as wrapper:
        call_command("migrate", "payments", "0001", database="ordered", verbosity=0)
        with another_session(wrapper) as settling, ThreadPoolExecutor(1) as beside:
            settling.execute("UPDATE payments_payment SET version = version")

            def settle_on() -> None:
                waits = "SELECT FROM pg_locks WHERE NOT granted"
                assert any(settling.execute(waits).fetchall() for _ in range(100_000)), "nobody waits"
                for table in ("attempt", "refund"):
                    settling.execute(f"UPDATE payments_{table} SET status = status")
                settling.commit()

            settled = beside.submit(settle_on)
            call_command("migrate", "payments", "0002", database="ordered", verbosity=0)
            settled.result()


def plain(definition: str) -> str:
    """Drop casts and parentheses, which PostgreSQL sets again when it reads a condition that it has written itself."""
    return re.sub(r"::(text|character varying)(\[\])?|[()]", "", definition)


def test_it_ends_with_the_permissions_of_a_fresh_one(former: BaseDatabaseWrapper) -> None:
    def permissions(using: str) -> set[tuple[str, ...]]:
        found = Permission.objects.using(using).filter(content_type__app_label__in=APPS)
        return set(found.values_list("content_type__app_label", "content_type__model", "codename", "name"))

    call_command("migrate", verbosity=0)  # a test that empties tables takes them along
    assert permissions("former") == permissions("default")
    assert ("payments", "payment", "tell_outcome", "Can record what became of a payment or refund") in permissions(
        "former"
    )


REFUSED = {
    "UPDATE payments_payment SET status = 'pending', paid_minor = 0": "payment_",
    "UPDATE payments_observation SET amount_minor = 1": "money_is_append_only",
    "DELETE FROM payments_journalline": "money_is_append_only",
    "DELETE FROM payments_auditentry": "money_is_append_only",
    "UPDATE shop_order SET status = 'pending', paid_at = NULL WHERE status = 'paid'": "order_step_is_allowed",
}


def test_its_rows_are_guarded_also_where_a_writer_turned_the_migration_away(
    turned_away: tuple[BaseDatabaseWrapper, list[str]], former: BaseDatabaseWrapper
) -> None:
    for found in (turned_away[1], [refused(former, statement) for statement in REFUSED]):
        assert [name.startswith(guard) for name, guard in zip(found, REFUSED.values(), strict=True)] == [True] * 5


def test_a_closed_order_returns_its_unit_to_the_sale(former: BaseDatabaseWrapper) -> None:
    with transaction.atomic(using="former"), former.cursor() as cursor:
        cursor.execute(
            "UPDATE shop_order SET status = 'closed', version = version + 1, closed_at = now() WHERE id IN"
            " (SELECT order_id FROM shop_flashsalepurchase)"
        )
        cursor.execute("SELECT sold FROM shop_flashsale")
        assert cursor.fetchall() == [(0,)]
        transaction.set_rollback(True, using="former")


def refused(wrapper: BaseDatabaseWrapper, statement: str) -> str:
    """Return the name of the constraint that refuses `statement`."""
    with wrapper.cursor() as cursor, pytest.raises(IntegrityError) as lost:
        cursor.execute(statement)
    return str(lost.value.__cause__.diag.constraint_name)  # type: ignore[union-attr]


@contextmanager
def another_session(former: BaseDatabaseWrapper) -> Iterator[psycopg.Connection]:
    """Inside of a transaction until the end."""
    with psycopg.connect(**former.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as session:
        yield session
        session.rollback()
