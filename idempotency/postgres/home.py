"""The ledger's database, which ``IDEMPOTENCY["DATABASE"]`` names."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from idempotency.conf import parsed

NO_LEDGER = (
    "IDEMPOTENCY['ENABLED'] is False and the database is not PostgreSQL, so there is no ledger: nothing was done."
)


def alias() -> str:
    """Return its alias; ``default`` where the settings do not parse, which check E001 reports."""
    config = parsed()
    return DEFAULT_DB_ALIAS if config is None else config.database


def connection() -> Any:
    """Return this thread's connection to it, as `django.db.connections` has it."""
    return connections[alias()]


def execute(sql: str, values: Any = None) -> int:
    """Run a statement there; return the number of rows that it changed."""
    with connection().cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def rows(sql: str, values: Any = None) -> list[Any]:
    """Run a statement there; return its rows."""
    with connection().cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def row(sql: str, values: Any = None) -> Any:
    """Run a statement there; return its first row, None without one."""
    with connection().cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()


def has_no_ledger() -> bool:
    """Check for a database that cannot hold a ledger, for ``ENABLED`` False in a test suite."""
    config = parsed()
    return config is not None and not config.enabled and connection().vendor != "postgresql"


def is_in_transaction() -> bool:
    """Check for an atomic block; that of a `TestCase` does not count."""
    blocks = connection().atomic_blocks
    return bool(blocks) and not blocks[-1]._from_testcase


def refuse_open_transaction() -> None:
    """Raise RuntimeError where a keyed call cannot commit: in a transaction, no autocommit."""
    database = connection()
    if is_in_transaction() or not (database.atomic_blocks or _commits_by_itself(database)):
        raise RuntimeError(
            f"A transaction is open on {alias()!r}, and a keyed call opens its own. Remove atomic() or "
            "ATOMIC_REQUESTS around it, or set_autocommit(False); in a request, await calls one after the other, "
            "not by gather(). For once() inside a transaction, write transaction.on_commit, or consume_once."
        )


def _commits_by_itself(database: Any) -> bool:
    # not by `get_autocommit`, which connects: a replay from Redis needs no connection
    by_itself: bool = database.settings_dict["AUTOCOMMIT"] if database.connection is None else database.autocommit
    return by_itself


def close_if_left_behind(database: Any) -> bool:
    """Close a connection whose thread has ended, which undoes its work; return if it has."""
    if connection() is database:
        return False
    if database.connection is not None:
        database.connection.close()  # psycopg's, as Django's is for its own thread only
    return True
