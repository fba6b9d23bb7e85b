"""The ledger's database, which ``IDEMPOTENCY["DATABASE"]`` names; keyed views have their transactions there."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from idempotency.conf import parsed


def alias() -> str:
    """Return its alias in ``DATABASES``; ``default`` where the settings do not parse, which check E001 reports."""
    config = parsed()
    return DEFAULT_DB_ALIAS if config is None else config.database


def connection() -> Any:
    """Return this thread's connection to it, as `django.db.connections` has it."""
    return connections[alias()]
