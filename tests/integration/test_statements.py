"""`idempotency.statements`: several statements in one round trip are as good as one after the other."""

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from idempotency.statements import Statement, instances, send

pytestmark = pytest.mark.django_db(transaction=True)

_INSERT = """
INSERT INTO auth_user (username, password, first_name, last_name, email, is_staff, is_active, is_superuser,
    date_joined)
VALUES (%s, '', '', '', '', false, true, false, now())
"""
_NAMES = "SELECT id, username FROM auth_user WHERE username = ANY (%s) ORDER BY username"

NAMES = ["a; SELECT '", "b%s"]


def added(name: str, *, rows: int | None = 1) -> Statement:
    return Statement(_INSERT, [name], rows=rows)


def test_in_order_in_one_round_trip_and_each_sees_the_ones_before_it() -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        nothing, before, also_nothing, after = send(
            added(NAMES[0]), Statement(_NAMES, [NAMES]), added(NAMES[1]), Statement(_NAMES, [NAMES], rows=2)
        )
    assert len(captured) == 3  # BEGIN, all of them, COMMIT
    assert (nothing, also_nothing) == ([], [])
    assert ([name for _, name in before], [name for _, name in after]) == (NAMES[:1], NAMES)
    found = instances(User, ["id", "username"], after)
    assert [user.username for user in found] == NAMES
    assert found[0].is_active  # fetched by who asks


@pytest.mark.usefixtures("server_side_binding")
def test_one_by_one_where_the_driver_insists() -> None:
    with transaction.atomic():
        *_, after = send(added(NAMES[0]), added(NAMES[1]), Statement(_NAMES, [NAMES]))
    assert [name for _, name in after] == NAMES


def test_one_that_fails_leaves_nothing() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        send(added("a"), added("a"), added("c"))
    assert not User.objects.exists()


def test_another_number_of_rows_than_it_must_change_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="1 rows instead of 2"), transaction.atomic():
        send(added("a", rows=2), added("b"))
    assert not User.objects.exists()


def test_nothing_to_send_asks_nobody() -> None:
    with CaptureQueriesContext(connection) as captured:
        assert send() == []
    assert len(captured) == 0


@pytest.mark.parametrize("columns", [["id", "last_name", "first_name"], ["id", "nickname"]])
def test_columns_in_another_order_than_the_models_are_refused(columns: list[str]) -> None:
    with pytest.raises(ValueError, match="User is made of id"):
        instances(User, columns, [(1, "a", "b")])
