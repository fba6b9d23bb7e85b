"""System checks of the ledger's database: its constraint, log and last reaping."""

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as Advice

from idempotency.checks.registry import register
from idempotency.conf import parsed
from idempotency.ledger import queries
from idempotency.ledger.claiming import UNIQUE
from idempotency.models import LedgerEntry, LedgerEpoch
from idempotency.postgres import home

# values that keep statements and their parameters out of PostgreSQL's log; None or empty: not loaded
QUIET: dict[str, tuple[str | None, ...]] = {
    "log_min_error_statement": ("panic",),
    "log_error_verbosity": ("terse",),
    "log_statement": ("none", "ddl"),
    "log_min_duration_statement": ("-1",),
    "log_min_duration_sample": ("-1",),
    "log_transaction_sample_rate": ("0",),
    "auto_explain.log_min_duration": ("-1", "", None),
}
OVERDUE_SECONDS = 90_000.0  # without reaping: a day, and an hour for a daily run that begins late


@register(Tags.database)
def check_constraint(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that the constraint that decides is there: a restored dump may have lost it."""
    connection, settings, table = _ledger_database(databases), parsed(), LedgerEntry._meta.db_table
    if connection is None or (settings is not None and not settings.enabled):
        return
    with connection.cursor() as cursor:
        # no row: not migrated yet, `migrate` runs this check too
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_constraint JOIN pg_index ON conindid = indexrelid"
            " WHERE conname = %s AND conrelid = ledger AND indisvalid)"
            " FROM to_regclass(%s) AS ledger WHERE ledger IS NOT NULL",
            [UNIQUE, table],
        )
        if cursor.fetchone() in (None, (True,)):
            return
    yield Error(
        f"The unique constraint {UNIQUE!r} is missing from {table}: nothing would stop a second execution.",
        hint=f"Restore it: ALTER TABLE {table} ADD CONSTRAINT {UNIQUE} UNIQUE (key, scope).",
        id="idempotency.E007",
    )


@register(Tags.database)
def check_server_log(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that PostgreSQL logs no statement: ours carry keys, answers and payment data."""
    connection = _ledger_database(databases)
    if connection is None:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, current_setting(name, true) FROM unnest(%s::text[]) AS name", [list(QUIET)])
        loud = [f"{name} = {value}" for name, value in cursor.fetchall() if value not in QUIET[name]]
    if loud:
        yield Advice(
            f"PostgreSQL writes statements or values of them into its log: {', '.join(loud)}.",
            hint="Keys, stored answers and payers stand in them. Set in postgresql.conf, or as superuser by ALTER "
            "ROLE … SET: log_min_error_statement = panic, log_error_verbosity = terse; leave the others off.",
            id="idempotency.W002",
        )


@register(Tags.database)
def check_reaping(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn after a day without reaping, once there is something to remove."""
    connection, settings = _ledger_database(databases), parsed()
    if connection is None or settings is None or not settings.enabled:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'reaped_at'",
            [LedgerEpoch._meta.db_table],
        )
        if not cursor.fetchone()[0]:
            return  # not migrated yet: `migrate` runs this check too
        cursor.execute(queries.OVERDUE, [OVERDUE_SECONDS, settings.body_seconds, settings.tombstone_seconds])
        overdue = cursor.fetchone()
    if overdue is not None:
        yield Advice(
            f"Nothing has reaped the ledger for {overdue[0] / 3600:.0f} hours: it still stores answers or "
            "messages that are past their time.",
            hint="Run `manage.py idempotency reap` now, and then once an hour from any scheduler.",
            id="idempotency.W004",
        )


def _ledger_database(databases: Any) -> Any:
    """Return the ledger's connection; None where this run leaves it out, or for E006."""
    is_asked = home.alias() in (databases or ()) and home.connection().vendor == "postgresql"
    return home.connection() if is_asked else None
