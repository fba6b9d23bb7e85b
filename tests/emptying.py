"""Empties the tables after a test in two round trips.

Django's own way truncates every table and makes all permissions again: 0.3 s after each test that commits, which was a
quarter of the whole run. Here only the tables with rows are emptied, with triggers and foreign keys asleep; what
migrations put there (content types, permissions) stays.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import connection

KEPT = {"django_migrations", "django_content_type", "auth_permission"}


def empty_tables(_: Any = None) -> None:
    """In place of `TransactionTestCase._fixture_teardown`; needs a superuser of PostgreSQL."""
    if found := rows(_which_have_rows()):
        deletes = "; ".join(f"DELETE FROM {connection.ops.quote_name(name)}" for (name,) in found)
        rows(f"BEGIN; SET LOCAL session_replication_role = replica; {deletes}; COMMIT")


@contextmanager
def filled(statements: str, tables: tuple[str, ...]) -> Iterator[None]:
    """Have many rows in `tables` for a while, analysed, made by `statements`."""
    analyse = f"VACUUM ANALYZE {', '.join(tables)}"
    rows(statements)
    rows(analyse)
    yield
    empty_tables()
    rows(analyse)


def plan_of(statement: str, parameters: Sequence[Any] = ()) -> str:
    """PostgreSQL's plan of a statement that it has run."""
    return "\n".join(line for (line,) in rows(f"EXPLAIN ANALYZE {statement}", *parameters))


def rows(statement: str, *parameters: Any) -> list[Any]:
    """Run a statement on the tests' database; its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


@cache
def _which_have_rows() -> str:
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return " UNION ALL ".join(
        f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(name)})"
        for name in sorted(set(names) - KEPT)
    )
