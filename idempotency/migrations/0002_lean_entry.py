"""One CHECK for nine, because PostgreSQL reads and plans each again at every insert.

For a table that is large and in use: the new one is added unchecked, then validated while others write, and only
then the old ones go. No statement waits for the table longer than `LOCK_WAIT`, none rewrites it, and code of either
version satisfies both. Killed anywhere, or refused its lock, it is simply run again.

Source: PostgreSQL manual, ALTER TABLE, notes on NOT VALID and VALIDATE CONSTRAINT (read 2026-11)
"""

from collections.abc import Callable, Sequence
from typing import Any

from django.db import migrations, models, transaction
from django.db.models import Q

TABLE = "idempotency_ledgerentry"
LOCK_WAIT = "3s"  # requests queue up behind a lock that is waited for
FORMER = (
    "ledger_state_is_known",
    "ledger_mode_is_known",
    "ledger_key_is_not_empty",
    "ledger_scope_is_not_empty",
    "ledger_finished_has_an_answer",
    "ledger_answer_is_storable",
    "ledger_phased_run_has_a_lease",
    "ledger_fence_starts_at_one",
    "ledger_purged_has_no_body",
)
NAMED = Q(key__gt="", scope__gt="", fence__gte=1)
LEASED = Q(mode="atomic") | Q(mode="phased") & (
    Q(lease_until__isnull=False) | Q(finished_at__isnull=False) | Q(state="uncertain")
)
ANSWERED = Q(
    state="finished",
    finished_at__isnull=False,
    response_status__isnull=False,
    response_status__gte=200,
    response_status__lt=500,
) & (Q(purged_at__isnull=True) | Q(response_body__isnull=True))
OPEN = Q(finished_at__isnull=True, response_status__isnull=True, purged_at__isnull=True) & (
    Q(state="running") | Q(state="uncertain")
)
WHOLE = models.CheckConstraint(condition=NAMED & LEASED & (ANSWERED | OPEN), name="ledger_entry_is_whole")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Replace the nine CHECKs by the one."""
    _exchange(apps, schema_editor, added=lambda model: [WHOLE], dropped=FORMER)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Replace the one CHECK by the nine."""
    _exchange(apps, schema_editor, added=_former, dropped=[WHOLE.name])


def _former(model: Any) -> list[models.BaseConstraint]:
    # RunPython comes before the change of state, so its models have the nine, in either direction
    return [constraint for constraint in model._meta.constraints if constraint.name in FORMER]


def _exchange(
    apps: Any,
    schema_editor: Any,
    *,
    added: Callable[[Any], list[models.BaseConstraint]],
    dropped: Sequence[str],
) -> None:
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return  # a database of another kind, beside the ledger's own, keeps the nine
    model = apps.get_model("idempotency", "LedgerEntry")
    with connection.cursor() as cursor:
        present = _checks(cursor)
        missing = [constraint for constraint in added(model) if constraint.name not in present]
        with transaction.atomic(using=connection.alias):
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            for constraint in missing:
                cursor.execute(f"{constraint.create_sql(model, schema_editor)} NOT VALID")
        cursor.execute("SET statement_timeout = 0")  # a site's own is for requests; this reads the whole table
        try:
            for constraint in added(model):
                cursor.execute(f"ALTER TABLE {TABLE} VALIDATE CONSTRAINT {constraint.name}")
        finally:
            cursor.execute("RESET statement_timeout")
        drops = ", ".join(f"DROP CONSTRAINT IF EXISTS {name}" for name in dropped)
        with transaction.atomic(using=connection.alias):
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            cursor.execute(f"ALTER TABLE {TABLE} {drops}")


def _checks(cursor: Any) -> set[str]:
    cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'c'", [TABLE])
    return {name for (name,) in cursor.fetchall()}


class Migration(migrations.Migration):
    atomic = False  # validated in a transaction of its own, it holds no writer up

    dependencies = [("idempotency", "0001_squashed_0006_no_tallies")]

    operations = [
        # beside the change of state and not in it: `sqlmigrate` would carry it out there
        migrations.RunPython(forwards, backwards),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                *(migrations.RemoveConstraint(model_name="ledgerentry", name=name) for name in FORMER),
                migrations.AddConstraint(model_name="ledgerentry", constraint=WHOLE),
            ],
        ),
    ]
