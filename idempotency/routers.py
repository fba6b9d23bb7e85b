"""Database router for a ledger outside of the default database."""

from typing import Any

from idempotency.conf import config

APP = "idempotency"


class LedgerRouter:
    """Router of the app's tables to ``IDEMPOTENCY["DATABASE"]``, and nowhere else.

        DATABASE_ROUTERS = ["idempotency.routers.LedgerRouter"]

    It stands first and has no opinion about other apps.
    """

    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        """Return the ledger's alias for its models; from a replica an answer might be missing."""
        return config().database if model._meta.app_label == APP else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == config().database if app_label == APP else None
