# ruff: noqa: F403, F405
"""The project with an SQLite of its own; the notes and their ledger are at a second alias."""

from over_tokens import *

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "default.sqlite3"},
    "notes": DATABASES["default"],
}
DATABASE_ROUTERS = ["idempotency.routers.LedgerRouter", "notes.routers.NotesRouter"]
IDEMPOTENCY["DATABASE"] = "notes"
