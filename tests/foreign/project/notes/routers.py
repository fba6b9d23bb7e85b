"""Where the notes are, in a project with two databases."""

from typing import Any


class NotesRouter:
    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        return "notes" if model._meta.app_label == "notes" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "notes") == (app_label in {"notes", "idempotency"})
