"""Guards of the database: raw SQL cannot change a fact, an amount or the journal."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import Client

from payments.models import Attempt, AuditEntry
from payments.operations import actions
from payments.states import AttemptStatus, PaymentStatus, RefundStatus
from tests.integration.payments.conftest import OpenAttempt, fold, letter, paid, payment_of, refund_asked, refunded


def refused(sql: str, *parameters: object) -> str:
    def ask() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            assert cursor.rowcount, "it touched nothing, so nothing could be refused"

    with pytest.raises(DatabaseError) as caught:
        ask()
    return str(caught.value.__cause__.diag.constraint_name)  # type: ignore[union-attr]


@pytest.fixture
def attempt(open_attempt: OpenAttempt) -> Attempt:
    attempt = open_attempt()
    fold(paid(attempt), refunded(attempt, 990, "a" * 32), source="query")
    attempt.refresh_from_db()
    return attempt


def test_a_payment_only_goes_forward(attempt: Attempt) -> None:
    before = vars(payment_of(attempt)) | {"_state": 0}
    for change, constraint in (
        ("refunded_minor = 100", "payment_totals_only_grow"),
        ("amount_minor = 1", "payment_identity_is_fixed"),
        ("order_id = gen_random_uuid()", "payment_identity_is_fixed"),
        ("order_key = '7'", "payment_identity_is_fixed"),
        ("version = version - 1", "payment_version_only_grows"),
        ("status = 'refunded', refunded_minor = paid_minor", "payment_version_only_grows"),
        ("reserved_minor = 1001, version = version + 1", "payment_refunds_within_paid"),
        ("refunded_minor = 1991, version = version + 1", "payment_refunds_within_paid"),
        ("paid_minor = 1991, version = version + 1", "payment_paid_in_full"),
        ("refunded_minor = paid_minor, version = version + 1", "payment_status_fits_totals"),
        ("currency = 'USD'", "payment_identity_is_fixed"),
    ):
        assert refused(f"UPDATE payments_payment SET {change} WHERE id = %s", attempt.payment_id) == constraint
    assert vars(payment_of(attempt)) | {"_state": 0} == before


def test_facts_and_the_journal_are_append_only(attempt: Attempt) -> None:
    for change in (
        "observation SET amount_minor = 1 WHERE kind = 'paid'",
        "observation SET credited = false",
        "observation SET merchant = 'x'",
        "observation SET kind = 'closed'",
        "observation SET source = 'me'",
        "journalline SET amount_minor = amount_minor + 1",
        "journalline SET account = 'x'",
        "journalentry SET kind = 'counted'",
    ):
        assert refused(f"UPDATE payments_{change}") == "money_is_append_only", change


def test_nothing_about_money_is_deleted(attempt: Attempt) -> None:
    assert letter(attempt).send().status_code == 204
    fold(paid(attempt, provider_txn_id="again"), source="query")  # an anomaly
    refund_asked(attempt.payment_id, 100)
    facts = ("journalline", "journalentry", "observation", "notification", "anomaly")
    for table in (*facts, "refund", "attempt", "payment"):
        assert refused(f"DELETE FROM payments_{table}") == "money_is_append_only", table


def test_nothing_begins_as_paid_or_over(attempt: Attempt) -> None:
    """As a copy of a row under new numbers, so that only its status is in the way."""
    refund_asked(attempt.payment_id, 100)
    copy = """
        INSERT INTO payments_{table} SELECT (jsonb_populate_record(known, jsonb_build_object(
            'id', gen_random_uuid(), 'order_id', gen_random_uuid(), 'anomaly_id', NULL, 'status', %s::text))).*
        FROM payments_{table} AS known
    """
    for table, statuses, beginnings in (
        ("payment", PaymentStatus, {"pending"}),
        ("attempt", AttemptStatus, {"created", "pending"}),
        ("refund", RefundStatus, {"requested"}),
    ):
        for status in set(statuses) - beginnings:
            assert refused(copy.format(table=table), status) == "begins_at_the_beginning", (table, status)


def test_what_an_operator_did_outlives_their_account(attempt: Attempt, admin_user: User) -> None:
    by = actions.Operator(user_id=admin_user.pk, reason="x")
    actions.audit(attempt.payment, "Refunded", by=by, result="done.")
    LogEntry.objects.log_actions(admin_user.pk, [admin_user], CHANGE, "Renamed.", single_object=True)
    changes = ("message = ''", "operator = 'somebody else'")
    for sql in ("DELETE FROM payments_auditentry", *(f"UPDATE payments_auditentry SET {one}" for one in changes)):
        assert refused(sql) == "money_is_append_only"
    admin_user.delete()
    entry = AuditEntry.objects.get()
    assert (entry.operator, entry.message) == ("admin", "Refunded. Reason: x. Result: done.")


def test_the_hosts_own_log_has_no_trigger_of_ours() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'django_admin_log'::regclass AND NOT tgisinternal"
        )
        assert cursor.fetchall() == []


def test_an_entry_that_does_not_add_up_is_refused_when_it_commits(attempt: Attempt) -> None:
    entry = """
        INSERT INTO payments_journalentry (observation_id, kind)
        SELECT id, 'counted' FROM payments_observation WHERE kind = 'paid'
    """
    lines = (
        f"WITH entry AS ({entry} RETURNING id)"
        + """
        INSERT INTO payments_journalline (entry_id, account, amount_minor, currency)
        SELECT id, 'orders', 100, 'CNY' FROM entry
    """
    )
    two_currencies = f"{lines} UNION ALL SELECT id, 'held', -100, 'USD' FROM entry"
    third_side = """
        INSERT INTO payments_journalline (entry_id, account, amount_minor, currency)
        SELECT max(id), 'elsewhere', 1, 'CNY' FROM payments_journalentry
    """
    for wrong in (entry, lines, two_currencies, third_side):
        assert refused(wrong) == "journal_adds_up_to_zero", wrong


def test_a_refund_keeps_its_amount(attempt: Attempt) -> None:
    refund_asked(attempt.payment_id, 100)
    assert refused("UPDATE payments_refund SET amount_minor = 1") == "refund_identity_is_fixed"


@pytest.fixture
def as_web(transactional_db: None) -> Iterator[None]:
    """The connection has the rights of docs/how-to/database-roles.md from here on."""
    role = f"web_{os.getpid()}"
    said = (Path(__file__).resolve().parents[4] / "docs" / "how-to" / "database-roles.md").read_text()
    grants = re.findall(r"^((?:ALTER DEFAULT PRIVILEGES )?GRANT .* TO )payonce;$", said, re.MULTILINE)
    assert len(grants) == 4
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        try:
            for grant in grants:
                cursor.execute(f"{grant}{role}")
            cursor.execute("CREATE TABLE of_a_later_version (id bigserial)")
            cursor.execute(f"SET ROLE {role}")
            yield
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute("DROP TABLE IF EXISTS of_a_later_version")
            cursor.execute(f"DROP OWNED BY {role}")
            cursor.execute(f"DROP ROLE {role}")


def test_a_role_that_owns_nothing_cannot_forget_money(
    as_web: None, open_attempt: OpenAttempt, shopper: User
) -> None:
    attempt = open_attempt()
    fold(paid(attempt), refunded(attempt, 990, "a" * 32), source="query")
    assert payment_of(attempt).status == "partially_refunded"
    client = Client()
    client.force_login(shopper)
    answer = client.post(
        "/api/v1/orders",
        {"items": [{"sku": "mug", "quantity": 1}]},
        content_type="application/json",
        headers={"Idempotency-Key": "k1"},
    )
    assert answer.status_code == 201
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO of_a_later_version DEFAULT VALUES")
        for sql in ("TRUNCATE payments_journalline", "ALTER TABLE payments_observation DISABLE TRIGGER ALL"):
            with pytest.raises(DatabaseError, match=r"permission denied|must be owner"):
                cursor.execute(sql)
