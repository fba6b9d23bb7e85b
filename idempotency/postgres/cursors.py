"""psycopg's cursor for statements by hand: kept with its connection, and without Django's layers around it."""

from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper

# by Django's own object of a thread, which outlives connections; a cursor would keep its connection for ever. What
# the last statements returned stays until the next ones
_kept = WeakKeyDictionary[BaseDatabaseWrapper, Any]()

_DJANGOS = {
    name: getattr(BaseDatabaseWrapper, name) for name in ("cursor", "_cursor", "_prepare_cursor", "make_cursor")
}


def cursor_of(database: Any) -> Any:
    """psycopg's, the same one until the connection is another; Django's own where somebody stands around that.

    Django makes a new one for each call, and two layers around it, and looks at the same as is looked at here. The
    rest of what the layers do is left to who executes: `validate_no_broken_transaction`, `wrap_database_errors`.

    Raises:
        django.db.OperationalError: there is no connection, and none can be made.
    """
    if _has_company(database):
        return database.cursor()
    database.close_if_health_check_failed()
    database.ensure_connection()
    database.validate_thread_sharing()
    cursor = _kept.get(database)
    if cursor is None or cursor.connection is not database.connection:
        cursor = _kept[database] = database.create_cursor()
    return cursor


def _has_company(database: BaseDatabaseWrapper) -> bool:
    """Whether somebody counts, logs or traces Django's calls, or a backend does something before each."""
    execute = utils.CursorWrapper.execute
    return (
        bool(database.execute_wrappers)
        or database.queries_logged
        or "cursor" in vars(database)
        or not _is_as_django_has_it(type(database))
        # by who else might have put it there: a wrapper may call itself as what it wraps
        or type(execute) is not FunctionType
        or execute.__globals__ is not vars(utils)
    )


def _is_as_django_has_it(backend: type[BaseDatabaseWrapper]) -> bool:
    return all(getattr(backend, name) is method for name, method in _DJANGOS.items())
