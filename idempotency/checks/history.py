"""System check of the list of applied migrations."""

from typing import Any

from django.core.checks import CheckMessage, Error, Tags
from django.db import connections

from idempotency.checks.registry import register


@register(Tags.database)
def check_history(app_configs: Any, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no database stopped between migrations that were squashed and are gone.

    Django leaves the squashed one out there, and applies those after it to tables that are not as they expect.
    """
    if not databases:
        return []
    from django.db.migrations.recorder import MigrationRecorder  # noqa: PLC0415  serving processes need neither

    messages: list[CheckMessage] = []
    for alias in databases:
        applied = MigrationRecorder(connections[alias]).applied_migrations()
        for squashed in _squashed() if applied else ():
            found = [each for each in squashed.replaces if each in applied]
            if 0 < len(found) < len(squashed.replaces):
                messages.append(
                    Error(
                        f"The database {alias!r} stopped at {'.'.join(found[-1])}, one of the migrations that "
                        f"{squashed} replaces and that are gone. First run `migrate` of the version before they "
                        "were squashed, then of this one. For PayOnce's own apps that is the version of "
                        "2026-11-24.",
                        id="idempotency.E018",
                    )
                )
    return messages


def _squashed() -> list[Any]:
    """List the installed migrations that replace others of which none is there."""
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415

    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    there = loader.disk_migrations
    return [each for each in there.values() if each.replaces and not any(old in there for old in each.replaces)]
