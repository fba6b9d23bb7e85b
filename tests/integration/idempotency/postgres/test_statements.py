"""Several statements in one round trip are as good as one after the other."""

import psycopg
import pytest
from django.db import DatabaseError, DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from idempotency.postgres import statements
from idempotency.postgres.statements import Statement, UnexpectedRows, send

pytestmark = pytest.mark.django_db(transaction=True)

_INSERT = """
INSERT INTO auth_user (username, password, first_name, last_name, email, is_staff, is_active, is_superuser,
    date_joined)
VALUES (%s, '', '', '', '', false, true, false, now())
"""
_NAMES = "SELECT id, username FROM auth_user WHERE username = ANY (%s) ORDER BY username"

NAMES = ["a; SELECT '", "b%s"]


def added(name: str, *, rows: int | None = 1, certain: bool = False) -> Statement:
    return Statement(_INSERT, [name], rows=rows, certain=certain)


def test_in_order_in_one_round_trip_and_each_sees_the_ones_before_it() -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        nothing, before, also_nothing, after = send(
            added(NAMES[0]), Statement(_NAMES, [NAMES]), added(NAMES[1]), Statement(_NAMES, [NAMES], rows=2)
        )
    assert len(captured) == 3  # BEGIN, all of them, COMMIT
    assert (nothing, also_nothing) == ([], [])
    assert ([name for _, name in before], [name for _, name in after]) == (NAMES[:1], NAMES)


def test_their_transaction_is_djangos_from_the_first_of_them_on() -> None:
    committed: list[str] = []
    with transaction.atomic():
        send(added("a"))
        transaction.on_commit(lambda: committed.append("a"))
        with pytest.raises(UnexpectedRows), transaction.atomic():  # a savepoint
            send(added("b", rows=2))
        send(added("c"))
        assert (committed, _seen_by_others()) == ([], [])
    assert (committed, _seen_by_others()) == (["a"], ["a", "c"])
    with transaction.atomic():
        send(added("d"))
        transaction.set_rollback(True)
    send(added("e"))  # by itself again
    assert _seen_by_others() == ["a", "c", "e"]


def test_their_commit_goes_with_them_if_each_has_done_what_it_must() -> None:
    send(added("a"))
    rename = "UPDATE auth_user SET username = %s WHERE username = %s RETURNING id"
    done: list[str] = []
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        transaction.on_commit(lambda: done.append(_seen_by_others()[0]))
        send(added("c", certain=True), Statement(rename, ["b", "a"], rows=1), commit=True)
        assert (_seen_by_others(), done) == (["b", "c"], [])  # before Django's own
    assert (done, [query["sql"] for query in captured if query["sql"].startswith("COMMIT")]) == (["b"], ["COMMIT"])
    with pytest.raises(UnexpectedRows), transaction.atomic():
        send(added("d", certain=True), Statement(rename, ["e", "nobody"], rows=1), commit=True)
    with pytest.raises(DataError, match="division"), transaction.atomic():
        send(added("d"), Statement("SELECT 1 / 0", []))
    with transaction.atomic():
        with transaction.atomic():
            send(added("d", certain=True), commit=True)  # nothing, inside of another transaction
        transaction.set_rollback(True)
    assert _seen_by_others() == ["b", "c"]


def test_the_connection_is_left_as_django_has_it() -> None:
    with transaction.atomic():
        send(added("a"))
        assert not connection.connection.autocommit
        with connection.chunked_cursor() as cursor:  # one that outlived the transaction would be refused here
            cursor.execute("SELECT username FROM auth_user FOR UPDATE")
            assert cursor.fetchall() == [("a",)]
    with pytest.raises(DatabaseError), transaction.atomic():
        send(added("\0"))  # refused before anything is sent
    assert connection.connection.autocommit


def test_what_is_not_certain_is_not_committed_before_it_is_counted() -> None:
    insert = Statement(f"{_INSERT} ON CONFLICT DO NOTHING", ["a"], rows=1)
    send(insert)
    with pytest.raises(UnexpectedRows), transaction.atomic():
        send(added("b"), insert, commit=True)
    assert _seen_by_others() == ["a"]


def test_another_isolation_than_the_servers_default_is_kept() -> None:
    connection.ensure_connection()
    raw = connection.connection
    raw.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    try:
        with transaction.atomic():
            asked = Statement("SELECT current_setting('transaction_isolation')", [])
            assert send(asked) == [[("serializable",)]]
    finally:
        raw.isolation_level = None


def _seen_by_others() -> list[str]:
    with psycopg.connect(**connection.get_connection_params()) as other:
        return [name for (name,) in other.execute("SELECT username FROM auth_user ORDER BY username").fetchall()]


# plans


def test_a_statement_has_a_plan_of_its_own_from_the_fifth_use_on() -> None:
    connection.close()  # a session that knows nothing yet
    text = "SELECT %s::int + 1, '50%%', username FROM auth_user WHERE username = %s"
    for use in range(1, statements.USES + 3):
        assert send(added(f"b%s{use}"), Statement(text, [use, f"b%s{use}"])) == [
            [],
            [(use + 1, "50%", f"b%s{use}")],
        ]
        assert _kept() == (2 if use >= statements.USES else 0)
    connection.close()
    assert send(Statement(text, [1, "b%s1"])) == [[(2, "50%", "b%s1")]]
    assert _kept() == 0


def test_where_no_plan_can_be_made_the_error_is_djangos() -> None:
    text = "SELECT id, 'never before' FROM auth_user WHERE username = %s"
    for _ in range(statements.USES - 1):
        send(Statement(text, ["a"]))
    with transaction.atomic():
        with pytest.raises(DatabaseError, match="division"):
            send(Statement("SELECT 1 / 0", []))
        with pytest.raises(DatabaseError, match="aborted"):
            send(Statement(text, ["a"]))
        transaction.set_rollback(True)
    assert send(Statement(text, ["a"])) == [[]]


def test_a_plan_that_went_bad_costs_its_statement_once() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE narrow (word varchar(10))")
    try:
        words = Statement("SELECT word FROM narrow", [])
        for _ in range(statements.USES):
            send(words)
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE narrow ALTER COLUMN word TYPE varchar(20)")
        with pytest.raises(DatabaseError, match="cached plan"):
            send(words)
        for _ in range(statements.USES + 1):
            assert send(words) == [[]]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE narrow")
        connection.close()


def _kept() -> int:
    """Plans that this session has."""
    raw = connection.connection
    (count,) = raw.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'payonce%'").fetchone()
    return int(count)
