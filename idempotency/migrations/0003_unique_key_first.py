"""The unique index turned round, key first: the one index that decides twins then serves a search by key as well.

For a table that is large and in use: the new index is built beside the old one without locking writers out, and
takes its place and its name in one statement. ON CONFLICT infers by the set of columns, and who loses a race is told
by the constraint's name, so the code of either version works before, meanwhile and afterwards. While both stand, the
older is asked first, and names the loser's error. Only a phased twin that comes in the very instant of the first one,
while the index is being built, may be told of the new one, answer 500 and be right at its retry.

Killed anywhere, or turned away by who holds the table for longer than `LOCK_WAIT`, it is simply run again.

Source: PostgreSQL manual, ALTER TABLE, example of a constraint recreated without blocking updates (read 2026-11)
"""

from collections.abc import Callable
from typing import Any

from django.db import migrations, models, transaction

TABLE = "idempotency_ledgerentry"
UNIQUE = "ledger_one_entry_per_scope_and_key"
BESIDE = "ledger_one_entry_built_beside"
LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for


def turned(*columns: str) -> Callable[[Any, Any], None]:
    """An operation that leaves the constraint over `columns` in this order, whatever it finds."""

    def run(apps: Any, schema_editor: Any) -> None:
        connection = schema_editor.connection
        if connection.vendor != "postgresql":
            return  # a database of another kind, beside the ledger's own
        with connection.cursor() as cursor:
            if _columns(cursor, UNIQUE) == columns:
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {BESIDE}")
                return
            if _columns(cursor, BESIDE) != columns:
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {BESIDE}")
                _build(cursor, columns)
            with transaction.atomic(using=connection.alias):
                cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
                cursor.execute(
                    f"ALTER TABLE {TABLE} DROP CONSTRAINT IF EXISTS {UNIQUE},"
                    f" ADD CONSTRAINT {UNIQUE} UNIQUE USING INDEX {BESIDE}"
                )

    return run


def _build(cursor: Any, columns: tuple[str, ...]) -> None:
    cursor.execute("SET statement_timeout = 0")  # a site's own is for requests; ten million rows take a minute
    try:
        cursor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {BESIDE} ON {TABLE} ({', '.join(columns)})")
    finally:
        cursor.execute("RESET statement_timeout")


def _columns(cursor: Any, index: str) -> tuple[str, ...]:
    """Of a valid index of the ledger, in order; none of one that is missing, or that a killed build left behind."""
    cursor.execute(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indexrelid"
        " WHERE indexrelid = to_regclass(%s) AND indrelid = to_regclass(%s) AND indisvalid ORDER BY attnum",
        [index, TABLE],
    )
    return tuple(name for (name,) in cursor.fetchall())


class Migration(migrations.Migration):
    atomic = False  # no index is built concurrently inside a transaction

    dependencies = [
        ("idempotency", "0002_history_tombstones_recovery_inbox"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint(model_name="ledgerentry", name=UNIQUE),
                migrations.AddConstraint(
                    model_name="ledgerentry",
                    constraint=models.UniqueConstraint(fields=("key", "scope"), name=UNIQUE),
                ),
            ],
        ),
        # beside it and not in it: `sqlmigrate` would carry it out there
        migrations.RunPython(turned("key", "scope"), turned("scope", "key")),
    ]
