"""psycopg cursor for hand-written statements, reused and without Django's layers around it."""

from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper

# by Django's object of a thread, which outlives connections; a cursor would keep its connection for ever. The rows
# of the last statements stay until the next ones
_cursors = WeakKeyDictionary[BaseDatabaseWrapper, Any]()

_DJANGOS_GLOBALS = vars(utils)


def cursor_of(database: Any) -> Any:
    """Return psycopg's cursor, the same for a connection. Django's own where that is instrumented.

    Django makes one for each call, with two layers around it. Its checks before are made here, unless its `atomic`
    has made them; the rest is left to the caller: `validate_no_broken_transaction`, `wrap_database_errors`.

    Raises:
        django.db.OperationalError: there is no connection, and none can be made.
    """
    if _is_instrumented(database):
        return database.cursor()
    if not database.in_atomic_block or database.connection is None:
        database.close_if_health_check_failed()
        database.ensure_connection()
    database.validate_thread_sharing()
    cursor = _cursors.get(database)
    if cursor is None or cursor.connection is not database.connection:
        cursor = _cursors[database] = database.create_cursor()
    return cursor


def _is_instrumented(database: BaseDatabaseWrapper) -> bool:
    """Return whether Django's calls are counted, logged or traced, or a backend prepares each."""
    execute = utils.CursorWrapper.execute
    return (
        bool(database.execute_wrappers)
        or database.queries_logged
        or "cursor" in database.__dict__
        or _methods(type(database)) != _DJANGOS
        # by its globals: a wrapper may take the name of what it wraps
        or type(execute) is not FunctionType
        or execute.__globals__ is not _DJANGOS_GLOBALS
    )


def _methods(backend: Any) -> tuple[Any, ...]:
    return backend.cursor, backend._cursor, backend._prepare_cursor, backend.make_cursor


_DJANGOS = _methods(BaseDatabaseWrapper)
