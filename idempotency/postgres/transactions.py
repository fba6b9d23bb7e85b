"""Transaction control that travels with the next statement, without a round trip.

Inside a transaction that `defer` is called for, Django's ``SAVEPOINT`` and ``RELEASE SAVEPOINT`` wait, and go in
front of the next statement in one message, as ``BEGIN`` does in front of the first. A savepoint without a
statement after it is never sent; one that is set before the first statement is BEGIN itself. ``ROLLBACK TO`` is
sent at once. A text that the server has not parsed yet goes alone, after what waits: in one message with a
savepoint, its syntax error would take the savepoint along.

It works below Django, by psycopg's public `Connection.cursor_factory`, so that wrappers see what they always see.
Without wrappers, a savepoint makes no cursor: it costs most. psycopg's own `Connection.transaction` blocks are out
of reach. A statement that would end the transaction, such as ``COMMIT``, is refused when it is first seen.
"""

import re
from collections.abc import Callable
from operator import attrgetter
from types import FunctionType
from typing import Any

import psycopg
from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils.asyncio import async_unsafe
from psycopg.pq import PipelineStatus, TransactionStatus

from idempotency.postgres.texts import parsed, refuse_end, remember

IDLE, OPEN, FAILED = TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR

_CONTROL = re.compile(r'(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT) ("[^"]+")')

_methods_of = attrgetter("cursor", "_cursor", "_prepare_cursor", "make_cursor", "savepoint", "savepoint_commit")
_DJANGOS = _methods_of(BaseDatabaseWrapper)


def defer(database: BaseDatabaseWrapper) -> None:
    """Let transaction control travel, until `stop`, in the transaction that was just opened.

    Watches it only where that is not possible: inside another transaction (a test case's), with server-side
    binding; or where Django logs what was sent. Does nothing with another driver.
    """
    traffic = _traffic_of(database)
    is_outermost = database.in_atomic_block and not database.savepoint_ids
    if traffic is None or (traffic.is_watched and not is_outermost):
        return
    traffic.begin(is_watched=True, travels=is_outermost and traffic.merges and not database.queries_logged)
    # where other code has put its own, the cursor alone defers
    if traffic.travels and traffic.replaced.keys().isdisjoint(database.__dict__):
        database.__dict__.update(traffic.replaced)


def stop(database: BaseDatabaseWrapper) -> None:
    """Drop waiting savepoints before a commit or rollback, which ends them all."""
    traffic = getattr(database.__dict__.get("savepoint"), "__self__", None)
    if isinstance(traffic, _Traffic):  # also where other code has put its own cursors since
        for name in traffic.replaced:
            del database.__dict__[name]
    elif (traffic := _traffic_of(database)) is None:
        return
    traffic.begin()


def execute(database: BaseDatabaseWrapper, cursor: Any, text: str, parameters: list[Any]) -> None:
    """Run a text that is known to parse; the BEGIN of an `atomic` block goes with it."""
    if hash(text) not in parsed:
        remember(text)
    traffic = getattr(cursor, "traffic", None)
    if traffic is None:
        cursor.execute(text, parameters)
        return
    traffic.is_ours = True
    try:
        cursor.execute(text, parameters)
    finally:
        traffic.is_ours = False


def cursor_of(database: Any) -> Any:
    """Return the connection's one psycopg cursor; Django's own where that is instrumented.

    Django makes one for each call, with two layers around it. Its checks before are made here, unless its `atomic`
    has made them; the rest is left to the caller: `validate_no_broken_transaction`, `wrap_database_errors`.
    """
    if _is_instrumented(database):
        return database.cursor()
    if not database.in_atomic_block or database.connection is None:
        database.close_if_health_check_failed()
        database.ensure_connection()
    database.validate_thread_sharing()
    traffic = _traffic_of(database)
    if traffic is None:
        return database.create_cursor()
    traffic.cursor = traffic.cursor or database.create_cursor()
    return traffic.cursor


def prepare(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Give a new connection cursors that can be watched and take transaction control along.

    That only with client-side binding, which may send several statements at once, and an encoding that takes every
    text: else a message may be refused before its first statement.
    """
    raw: Any = connection.connection
    if isinstance(connection.connection, psycopg.Connection):
        if not issubclass(raw.cursor_factory, _Travelling):  # else a pool has it from another of Django's
            raw.cursor_factory = type(raw.cursor_factory.__name__, (_Travelling, raw.cursor_factory), {})
        is_utf8 = raw.info.parameter_status("server_encoding") == "UTF8"
        merges = is_utf8 and issubclass(raw.cursor_factory, psycopg.ClientCursor)
        raw.cursor_factory.traffic = _Traffic(connection, merges=merges)


connection_created.connect(prepare)


class _Traffic:
    """Statements of one connection on their way to the server.

    Attributes:
        merges: several may go in one message.
        is_watched: the transaction of a handler is open, which no statement of it may end.
        travels: its transaction control goes with the next statement.
        is_ours: the statement that runs now is one of `execute`.
        waiting: SAVEPOINT and RELEASE statements, in order.
        open: names of open savepoints, in order, whether the server knows them yet or not.
        at_begin: those of them that were set before the first statement.
        cursor: see `cursor_of`. The rows of its last statements stay until the next ones.
        names: number of our savepoints. From 1 in each transaction: psycopg parses no text that it has seen.
        replaced: methods of Django's connection while transaction control travels.
    """

    def __init__(self, database: BaseDatabaseWrapper, *, merges: bool) -> None:
        self._database, self._raw = database, database.connection
        self.merges, self.is_ours, self.cursor = merges, False, None
        self.replaced = {name: getattr(self, name) for name in ("savepoint", "savepoint_commit", "chunked_cursor")}
        self.begin()

    def begin(self, *, is_watched: bool = False, travels: bool = False) -> None:
        """Begin with another transaction: nothing waits."""
        self.is_watched, self.travels, self.names = is_watched, travels, 0
        self.waiting: list[str] = []
        self.open: list[str] = []
        self.at_begin: set[str] = set()

    def execute(self, cursor: Any, run: Callable[..., Any], query: Any, parameters: Any, options: Any) -> Any:
        """Run a statement of `cursor` by `run`, psycopg's own `execute`, after what waits for it."""
        raw, is_text = self._raw, isinstance(query, str)
        goes_alone = not is_text or hash(query) not in parsed or raw.pgconn.pipeline_status != PipelineStatus.OFF
        if self.travels and is_text and (control := _CONTROL.fullmatch(query)):
            if not self._hold_back(*control.groups()):
                self.flush(run)
                run(query)
        elif goes_alone:
            self.flush(run)
            if not self.is_ours:
                refuse_end(query, cursor)
            run(query, parameters, **options)
            if is_text:
                remember(query)
        elif raw.pgconn.transaction_status == IDLE and self._merges_begin():  # nothing waits: see `_hold_back`
            raw._autocommit = True  # or psycopg sends a BEGIN first; its public setter would not set it back
            try:
                _run_behind(["BEGIN"], cursor, run, query, parameters, **options)
            finally:
                raw._autocommit = False
        elif self.waiting:
            _run_behind(self.waiting, cursor, run, query, parameters, **options)
        else:
            run(query, parameters, **options)
        return cursor

    def _merges_begin(self) -> bool:
        raw: Any = self._raw
        may = (self.travels or (self.is_ours and self.merges)) and not raw.autocommit
        return may and raw.isolation_level is None and raw.read_only is None and raw.deferrable is None

    def flush(self, run: Callable[..., Any]) -> None:
        """Send what waits alone, in front of a statement that takes nothing along."""
        while self.waiting:
            run(self.waiting[0])
            del self.waiting[0]

    @async_unsafe
    def savepoint(self) -> str | None:
        self.names += 1
        name = f"s_x{self.names}"  # Django's have a number before the x
        waits = self._is_quiet() and self._hold_back("SAVEPOINT", f'"{name}"')
        return name if waits else type(self._database).savepoint(self._database)

    @async_unsafe
    def savepoint_commit(self, name: str) -> None:
        if not (self._is_quiet() and self._hold_back("RELEASE SAVEPOINT", f'"{name}"')):
            type(self._database).savepoint_commit(self._database, name)

    @async_unsafe
    def chunked_cursor(self) -> Any:
        """Make a server-side cursor, as Django's method of this name, after what waits."""
        database: Any = self._database
        if self.waiting:
            with database.wrap_database_errors:
                database.create_cursor()._flushed()
        return type(database).chunked_cursor(database)

    def _is_quiet(self) -> bool:
        """Check if a savepoint needs no cursor; else Django must send it, or refuse to."""
        database, raw = self._database, self._raw
        database.validate_thread_sharing()
        if database.connection is not raw or database.needs_rollback or _is_instrumented(database):
            return False
        return raw.pgconn.transaction_status in (IDLE, OPEN)

    def _hold_back(self, command: str, name: str) -> bool:
        """Let a savepoint's statement wait for the next one; False if the server must hear it now."""
        status, is_unsent = self._raw.pgconn.transaction_status, self.waiting[-1:] == [f"SAVEPOINT {name}"]
        if status == FAILED and command != "ROLLBACK TO SAVEPOINT":
            return False  # refused, with the server's own words
        if command == "SAVEPOINT":
            self.open.append(name)
            if status == IDLE:
                self.at_begin.add(name)
            else:
                self.waiting.append(f"SAVEPOINT {name}")
        elif name not in self.open:
            return False
        elif command == "RELEASE SAVEPOINT":
            del self.open[self.open.index(name) :]
            if is_unsent:
                del self.waiting[-1]
            elif name not in self.at_begin:
                self.waiting.append(f"RELEASE SAVEPOINT {name}")
        else:
            del self.open[self.open.index(name) + 1 :]
            if name not in self.at_begin:
                return is_unsent
            self.waiting.clear()
            self._raw.rollback()  # the next statement begins again
        return True


def _run_behind(front: list[str], cursor: Any, run: Any, query: str, parameters: Any, **options: Any) -> None:
    """Run a statement in one message with those in `front`, and empty it."""
    try:
        run("; ".join([*front, query]), parameters, **options)
    except psycopg.Error as error:
        if error.sqlstate is not None:  # the server's word; else nothing was sent
            front.clear()
        raise
    for _ in front:
        cursor.nextset()
    front.clear()


def _is_instrumented(database: BaseDatabaseWrapper) -> bool:
    """Return whether Django's calls are counted, logged or traced, or a backend prepares each."""
    execute = utils.CursorWrapper.execute
    return (
        bool(database.execute_wrappers)
        or database.queries_logged
        or "cursor" in database.__dict__
        or _methods_of(type(database)) != _DJANGOS
        # by its globals: a wrapper may take the name of what it wraps
        or type(execute) is not FunctionType
        or execute.__globals__ is not vars(utils)
    )


class _Travelling:
    """Cursor in front of a psycopg class, which takes the waiting transaction control along.

    Each connection has a class of its own, which knows its traffic.
    """

    traffic: _Traffic

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        run = super().execute  # type: ignore[misc]
        if self.traffic.is_watched or self.traffic.is_ours:
            return self.traffic.execute(self, run, query, params, options)
        return run(query, params, **options)

    def executemany(self, *given: Any, **options: Any) -> Any:
        return self._flushed().executemany(*given, **options)

    def copy(self, *given: Any, **options: Any) -> Any:
        return self._flushed().copy(*given, **options)

    def stream(self, *given: Any, **options: Any) -> Any:
        return self._flushed().stream(*given, **options)

    def _flushed(self) -> Any:
        """Send what waits, and return psycopg's own methods."""
        own: Any = super()
        self.traffic.flush(own.execute)
        return own


def _traffic_of(database: BaseDatabaseWrapper) -> _Traffic | None:
    """Return a connection's traffic; None with another driver, or behind other code's cursors."""
    traffic: _Traffic | None = getattr(getattr(database.connection, "cursor_factory", None), "traffic", None)
    return traffic
