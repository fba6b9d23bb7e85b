"""Transaction control that travels with the next statement, in place of a round trip of its own.

Inside a transaction that `defer` is called for, Django's ``SAVEPOINT`` and ``RELEASE SAVEPOINT`` wait, and go in
front of the next statement in one message, as ``BEGIN`` does in front of the first. A savepoint without a
statement after it is never sent; one that is set before the first statement is BEGIN itself. ``ROLLBACK TO`` is
sent at once.

It works below Django, by psycopg's public `Connection.cursor_factory`, so that wrappers see what they always see.
Without wrappers, Django's methods `savepoint` and `savepoint_commit` make no cursor: it costs most. A
text that the server has not parsed yet goes alone, after what waits: in one message with a savepoint, its syntax
error would take the savepoint along. A server-side cursor comes after what waits, too.
psycopg's own `Connection.transaction` blocks are out of reach.

A statement that would end that transaction, such as ``COMMIT`` by hand, is refused when its text is first seen.

`cursor_of` is the cursor of hand-written statements, reused and without Django's layers around it.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils.asyncio import async_unsafe
from psycopg.pq import PipelineStatus, TransactionStatus

from idempotency.postgres.endings import refuse_end

IDLE, OPEN, FAILED = TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR
PARSED_MAX = 2048  # texts that are remembered; a project has some hundreds
TEXT_MAX = 8_192  # characters; a longer one is remembered by its digest

_CONTROL = re.compile(r'(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT) ("[^"]+")')
_REPLACED = ("savepoint", "savepoint_commit", "chunked_cursor")  # methods of Django's connection
_CONTROLS = ("SAVEPOINT ", "RELEASE ", "ROLLBACK ")

_parsed: set[str] = set()


class _Watch:
    """Open transaction of a keyed call, which no statement of its handler may end.

    Attributes:
        is_ours: the statement that runs now is the call's own.
        travels: transaction control does.
    """

    is_ours = False
    travels = False

    def execute(self, cursor: Any, run: Callable[..., Any], query: Any, parameters: Any, options: Any) -> Any:
        """Run a statement of `cursor` by `run`, psycopg's own `execute`."""
        if not (self.is_ours or (isinstance(query, str) and _is_parsed(query))):
            refuse_end(query, cursor)
        run(query, parameters, **options)
        _remember(query)
        return cursor

    def flush(self, run: Callable[..., Any]) -> None:
        """Send what waits, which is nothing."""


class _Deferral(_Watch):
    """Transaction control of one open transaction.

    Attributes:
        waiting: SAVEPOINT and RELEASE statements, in order.
        open: names of open savepoints, in order, whether the server knows them yet or not.
        at_begin: those of them that were set before the first statement.
    """

    travels = True

    def __init__(self, database: BaseDatabaseWrapper) -> None:
        self._database, raw = database, database.connection
        self._merges_begin = raw.isolation_level is None and raw.read_only is None and raw.deferrable is None
        self.waiting: list[str] = []
        self.open: list[str] = []
        self.at_begin: set[str] = set()

    def execute(self, cursor: Any, run: Callable[..., Any], query: Any, parameters: Any, options: Any) -> Any:
        """Run a statement of `cursor` by `run`, psycopg's own `execute`, after what waits for it."""
        raw, is_text = cursor.connection, isinstance(query, str)
        if is_text and query.startswith(_CONTROLS) and (control := _CONTROL.fullmatch(query)):
            if not self._is_kept(raw, *control.groups()):
                self.flush(run)
                run(query)
            return cursor
        if not is_text or not _is_parsed(query) or raw.pgconn.pipeline_status != PipelineStatus.OFF:
            self.flush(run)
            return super().execute(cursor, run, query, parameters, options)
        if self._merges_begin and raw.pgconn.transaction_status == IDLE:  # nothing waits yet: see `_is_set`
            raw._autocommit = True  # or psycopg sends a BEGIN first; its public setter would not set it back
            try:
                run(f"BEGIN; {query}", parameters, **options)
            finally:
                raw._autocommit = False
            cursor.nextset()
        elif self.waiting:
            self._run_after_waiting(run, query, parameters, options)
            for _ in self.waiting:
                cursor.nextset()
            self.waiting.clear()
        else:
            run(query, parameters, **options)
        return cursor

    def flush(self, run: Callable[..., Any]) -> None:
        """Send what waits alone, in front of a statement that takes nothing along."""
        while self.waiting:
            run(self.waiting[0])
            del self.waiting[0]

    def _run_after_waiting(self, run: Callable[..., Any], query: str, parameters: Any, options: Any) -> None:
        try:
            run("; ".join([*self.waiting, query]), parameters, **options)
        except psycopg.Error as error:
            if error.sqlstate is not None:  # the server's word; else nothing was sent
                self.waiting.clear()
            raise

    @async_unsafe
    def savepoint(self) -> str | None:
        """Set a savepoint, as Django's method of this name."""
        database = self._database
        database.savepoint_state += 1
        name = f"s_x{database.savepoint_state}"  # Django's have a number before the x
        return name if self._is_noted("SAVEPOINT", name) else type(database).savepoint(database)

    @async_unsafe
    def savepoint_commit(self, name: str) -> None:
        """Release a savepoint, as Django's method of this name."""
        if not self._is_noted("RELEASE SAVEPOINT", name):
            type(self._database).savepoint_commit(self._database, name)

    @async_unsafe
    def chunked_cursor(self) -> Any:
        """Make a server-side cursor, as Django's method of this name, after what waits."""
        database: Any = self._database
        if self.waiting:
            with database.wrap_database_errors:
                database.create_cursor()._flush()
        return type(database).chunked_cursor(database)

    def _is_noted(self, command: str, name: str) -> bool:
        """Take a statement into account as `execute` does; False if Django must send it, or refuse to."""
        database, raw = self._database, self._database.connection
        database.validate_thread_sharing()
        if raw is None or database.needs_rollback or raw.pgconn.transaction_status not in (IDLE, OPEN):
            return False
        return not _is_instrumented(database) and self._is_kept(raw, command, f'"{name}"')

    def _is_kept(self, raw: psycopg.Connection[Any], command: str, name: str) -> bool:
        """Take a savepoint's statement into account; False if the server must hear it now."""
        status = raw.pgconn.transaction_status
        if command == "SAVEPOINT":
            return self._is_set(name, status)
        if name not in self.open:
            return False  # refused, with the server's own words
        if command == "ROLLBACK TO SAVEPOINT":
            return self._is_rolled_back(raw, name)
        return status != FAILED and self._is_released(name)

    def _is_set(self, name: str, status: int) -> bool:
        if status == FAILED:
            return False
        self.open.append(name)
        if status == IDLE:
            self.at_begin.add(name)
        else:
            self.waiting.append(f"SAVEPOINT {name}")
        return True

    def _is_released(self, name: str) -> bool:
        del self.open[self.open.index(name) :]
        if self.waiting[-1:] == [f"SAVEPOINT {name}"]:
            del self.waiting[-1]
        elif name not in self.at_begin:
            self.waiting.append(f"RELEASE SAVEPOINT {name}")
        return True

    def _is_rolled_back(self, raw: psycopg.Connection[Any], name: str) -> bool:
        del self.open[self.open.index(name) + 1 :]
        if name in self.at_begin:
            self.waiting.clear()
            raw.rollback()  # the next statement begins again
            return True
        return self.waiting[-1:] == [f"SAVEPOINT {name}"]


_deferrals = WeakKeyDictionary[psycopg.Connection[Any], _Watch]()


def defer(database: BaseDatabaseWrapper) -> None:
    """Let transaction control travel, from now to `stop`, in the transaction that has just been opened.

    Watches it only where that is not possible: inside another transaction (a test case's), with server-side
    binding; or where Django logs what was sent. Does nothing with another driver.
    """
    raw = database.connection
    is_outermost = database.in_atomic_block and not database.savepoint_ids
    if is_outermost and _is_prepared(raw) and not database.queries_logged:
        deferral = _deferrals[raw] = _Deferral(database)
        if not vars(database).keys() & set(_REPLACED):  # else other code stands there: the cursor alone defers
            vars(database).update({name: getattr(deferral, name) for name in _REPLACED})
    elif _is_watched(raw) and raw not in _deferrals:
        _deferrals[raw] = _Watch()


def stop(database: BaseDatabaseWrapper) -> None:
    """Drop what waits, before the transaction is committed or rolled back: either ends every savepoint."""
    if isinstance(getattr(database.savepoint, "__self__", None), _Deferral):
        for name in _REPLACED:
            del vars(database)[name]
    if database.connection is not None:
        _deferrals.pop(database.connection, None)


def execute(database: BaseDatabaseWrapper, cursor: Any, text: str, parameters: list[Any]) -> None:
    """Run a text that is known to parse; the BEGIN of an `atomic` block goes with it."""
    _remember(text)
    raw = database.connection
    former = _deferrals.get(raw)
    travels = former is not None and former.travels
    if not travels and database.in_atomic_block and not raw.autocommit and _is_prepared(raw):
        watch: _Watch | None = _Deferral(database)
    else:
        watch = former
    if watch is None:
        cursor.execute(text, parameters)
        return
    _deferrals[raw], watch.is_ours = watch, True
    try:
        cursor.execute(text, parameters)
    finally:
        watch.is_ours = False
        if former is None:
            del _deferrals[raw]
        else:
            _deferrals[raw] = former


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
    cursors = backend.cursor, backend._cursor, backend._prepare_cursor, backend.make_cursor
    return *cursors, backend.savepoint, backend.savepoint_commit


_DJANGOS = _methods(BaseDatabaseWrapper)


def _is_parsed(text: str) -> bool:
    return (text if len(text) <= TEXT_MAX else _digest(text)) in _parsed


def _remember(query: Any) -> None:
    if isinstance(query, str) and not _is_parsed(query):
        if len(_parsed) >= PARSED_MAX:
            _parsed.clear()
        _parsed.add(query if len(query) <= TEXT_MAX else _digest(query))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Travelling:
    """Cursor in front of a psycopg class: a statement takes the waiting transaction control along.

    Attributes:
        merges: it may; else it is watched only.
    """

    connection: psycopg.Connection[Any]
    merges: bool

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        run = super().execute  # type: ignore[misc]
        deferral = _deferrals.get(self.connection)
        if deferral is None:
            return run(query, params, **options)
        return deferral.execute(self, run, query, params, options)

    def executemany(self, *given: Any, **options: Any) -> Any:
        self._flush()
        return super().executemany(*given, **options)  # type: ignore[misc]

    def copy(self, *given: Any, **options: Any) -> Any:
        self._flush()
        return super().copy(*given, **options)  # type: ignore[misc]

    def stream(self, *given: Any, **options: Any) -> Any:
        self._flush()
        return super().stream(*given, **options)  # type: ignore[misc]

    def _flush(self) -> None:
        deferral = _deferrals.get(self.connection)
        if deferral is not None:
            deferral.flush(super().execute)  # type: ignore[misc]


@cache
def _travelling(factory: type[Any], *, merges: bool) -> type[Any]:
    return type(factory.__name__, (_Travelling, factory), {"__module__": __name__, "merges": merges})


def _is_watched(raw: Any) -> bool:
    return isinstance(raw, psycopg.Connection) and issubclass(raw.cursor_factory, _Travelling)


def _is_prepared(raw: Any) -> bool:
    return isinstance(raw, psycopg.Connection) and getattr(raw.cursor_factory, "merges", False) is True


def prepare(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Give a new connection cursors whose statements can be watched, and take transaction control along.

    That only with client-side binding, which may send several statements at once, and an encoding that takes every
    text: else a message may be refused before its first statement.
    """
    raw = connection.connection
    if isinstance(raw, psycopg.Connection) and not _is_watched(raw):
        factory: Any = raw.cursor_factory
        is_utf8 = raw.info.parameter_status("server_encoding") == "UTF8"
        raw.cursor_factory = _travelling(factory, merges=is_utf8 and issubclass(factory, psycopg.ClientCursor))


connection_created.connect(prepare)
