"""System checks of databases: migrations; the ledger's constraint, log and last reaping."""

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as Advice
from django.db import connections
from django.db.migrations.loader import MigrationLoader

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
OURS = ("idempotency", "payments", "shop")
OVERDUE_SECONDS = 90_000.0  # without reaping: a day, and an hour for a daily run that begins late


@register(Tags.database)
def check_constraint(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that the constraint that decides is there: a restored dump may have lost it."""
    settings, table = parsed(), LedgerEntry._meta.db_table
    if not _is_asked(databases) or (settings is not None and not settings.enabled):
        return
    found = home.row(
        "SELECT EXISTS (SELECT FROM pg_constraint JOIN pg_index ON conindid = indexrelid"
        " WHERE conname = %s AND conrelid = ledger AND indisvalid)"
        " FROM to_regclass(%s) AS ledger WHERE ledger IS NOT NULL",
        [UNIQUE, table],
    )
    if found in (None, (True,)):  # no row: not migrated yet, `migrate` runs this check too
        return
    yield Error(
        f"The unique constraint {UNIQUE!r} is missing from {table}: nothing would stop a second execution.",
        hint=f"Restore it: ALTER TABLE {table} ADD CONSTRAINT {UNIQUE} UNIQUE (key, scope).",
        id="idempotency.E007",
    )


@register(Tags.database)
def check_server_log(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that PostgreSQL logs no statement: ours carry keys, answers and payment data."""
    if not _is_asked(databases):
        return
    found = home.rows("SELECT name, current_setting(name, true) FROM unnest(%s::text[]) AS name", [list(QUIET)])
    if loud := [f"{name} = {value}" for name, value in found if value not in QUIET[name]]:
        yield Advice(
            f"PostgreSQL writes statements or values of them into its log: {', '.join(loud)}.",
            hint="Keys, stored answers and payers stand in them. Set in postgresql.conf, or as superuser by ALTER "
            "ROLE … SET: log_min_error_statement = panic, log_error_verbosity = terse; leave the others off.",
            id="idempotency.W002",
        )


@register(Tags.database)
def check_reaping(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn after a day without reaping, once there is something to remove."""
    settings = parsed()
    if not _is_asked(databases) or settings is None or not settings.enabled:
        return
    has_it = "SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'reaped_at'"
    if not home.rows(has_it, [LedgerEpoch._meta.db_table]):
        return  # not migrated yet: `migrate` runs this check too
    times = [OVERDUE_SECONDS, settings.body_seconds, settings.tombstone_seconds]
    if overdue := home.row(queries.OVERDUE, times):
        yield Advice(
            f"Nothing has reaped the ledger for {overdue[0] / 3600:.0f} hours: it still stores answers or "
            "messages that are past their time.",
            hint="Run `manage.py idempotency reap` now, and then once an hour from any scheduler.",
            id="idempotency.W004",
        )


@register(Tags.database)
def check_migrations(app_configs: Any, databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Refuse a database that has run some replaced migrations, where the others are gone.

    Django would skip the one that replaces them, and say that there is nothing to do.
    """
    for alias in databases or ():
        loader = MigrationLoader(connections[alias])
        for (app, name), migration in loader.replacements.items():
            run = loader.applied_migrations.keys() & {*migration.replaces}
            if app in OURS and run and {*migration.replaces} - run - loader.disk_migrations.keys():
                yield Error(
                    f"The database {alias!r} has run {len(run)} of the {len(migration.replaces)} migrations that"
                    f" {app}.{name} replaces; the others are here no longer.",
                    hint="Migrate with the last version that has them: commit 502e396c.",
                    id="idempotency.E018",
                )


def _is_asked(databases: Any) -> bool:
    """Check if this run looks at the ledger's database, and it is none for E006."""
    return home.alias() in (databases or ()) and home.connection().vendor == "postgresql"
