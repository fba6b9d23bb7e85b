"""Hand-written statements, sent together to save round trips and the ORM's compiler.

They are prepared: parsed and planned once a session, which saves half of PostgreSQL's work for a small one. A
text is prepared at its fifth use, as `prepare_threshold` of psycopg has it: for one request it is not worth it.
Never behind a pooler, where the next transaction has another session.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, IntegrityError, connections

from idempotency.postgres import transactions

DIVISION_BY_ZERO, LOCK_NOT_AVAILABLE = "22012", "55P03"
USES = 5

# SQLSTATEs of a prepared statement that is outdated, missing, or there already
STALE = frozenset({"0A000", "26000", "42P05"})


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement of SQL, without a semicolon.

    Attributes:
        sql: a SELECT, INSERT, UPDATE or DELETE with a placeholder for each parameter, and one of few texts, for
            each is prepared.
        rows: number of rows that it must change or return; None: any number.
        certain: it fails by itself where that would be another number.
    """

    sql: str
    parameters: Sequence[Any]
    rows: int | None = None
    certain: bool = False


class UnexpectedRows(RuntimeError):
    """A statement changed a wrong number of rows; roll back what was sent with it."""


def send(
    *statements: Statement, commit: bool = False, using: str = DEFAULT_DB_ALIAS
) -> list[list[tuple[Any, ...]]]:
    """Run statements in order, in one round trip if the driver can. Return each one's rows.

    Each reads by a snapshot of its own, as if it came alone. After one that fails none runs. If they are the first
    of their transaction, its BEGIN goes with them.

    Args:
        commit: they are the last of their transaction, and its COMMIT may go with them. Their counts cannot be
            checked before it, so an UPDATE that must change one row, and returns it, is made to fail by itself;
            with another statement that is not `certain` the COMMIT does not go.
        using: alias of the database.

    Raises:
        UnexpectedRows: one changed a wrong number of rows.

    Transaction: needs the caller's, which must roll back if this raises; one that is alone needs none.
    """
    if not statements:
        return []
    database = connections[using]  # once: each look-up through the proxy costs more than its result
    if database.settings_dict["OPTIONS"].get("server_side_binding"):  # then the driver takes one
        with database.cursor() as cursor:
            return [_run(cursor, statement) for statement in statements]
    # not inside a test case's transaction, where a commit would keep its rows. After it Django's `atomic` finds
    # nothing left to commit, and runs its `on_commit` callbacks
    is_ours_alone = database.in_atomic_block and not database.savepoint_ids
    commit = commit and is_ours_alone and all(map(_is_certain, statements))
    try:
        return _sent(database, statements, commit=commit)
    except DatabaseError as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state in STALE:
            _stop_preparing(database.connection)
        if commit and state == DIVISION_BY_ZERO:
            raise UnexpectedRows("an UPDATE changed no row, and had to change one") from error
        raise


class UnitOfWork:
    """Statements waiting for the next round trip of the caller's transaction.

    Sending checks what each must change (`Statement.rows`): `UnexpectedRows` rolls the caller's `atomic` back.

    Args:
        is_optimistic: take conditional steps for granted and send them with the rest. If sending raises
            `UnexpectedRows`, the caller begins again, not optimistically.

    Transaction: needs the caller's, from the first send on.
    """

    def __init__(self, *, is_optimistic: bool = False) -> None:
        self._waiting: list[Statement] = []
        self.is_optimistic = is_optimistic

    def add(self, *statements: Statement) -> None:
        self._waiting += statements

    def ask(self, statement: Statement) -> list[tuple[Any, ...]]:
        waiting, self._waiting = self._waiting, []
        return send(*waiting, statement)[-1]

    def step(self, statement: Statement) -> bool:
        """Run a conditional UPDATE of one row; return whether it changed the row."""
        if self.is_optimistic:
            self.add(replace(statement, rows=1))
            return True
        return bool(self.ask(statement))

    def flush(self, *, commit: bool = False) -> None:
        """Send everything that waits; with `commit` the transaction's COMMIT may go along."""
        waiting, self._waiting = self._waiting, []
        send(*waiting, commit=commit)


def _sent(database: Any, statements: Sequence[Statement], *, commit: bool) -> list[list[tuple[Any, ...]]]:
    cursor = transactions.cursor_of(database)
    database.validate_no_broken_transaction()
    raw = database.connection
    texts = [_failing(statement) if commit else statement.sql for statement in statements]
    values = [value for statement in statements for value in statement.parameters]
    with database.wrap_database_errors:
        texts = prepared_texts(raw, texts)
        transactions.execute(database, cursor, "; ".join([*texts, *["COMMIT"] * commit]), values)
    return _found(getattr(cursor, "cursor", cursor), statements)


def _is_certain(statement: Statement) -> bool:
    return statement.rows is None or statement.certain or _is_update_of_one(statement)


def _is_update_of_one(statement: Statement) -> bool:
    return statement.rows == 1 and statement.sql.lstrip().startswith("UPDATE")


def _failing(statement: Statement) -> str:
    """Return its text, made to fail on the server where it must change a row and does not."""
    if statement.certain or not _is_update_of_one(statement):
        return statement.sql
    return f"WITH changed AS ({statement.sql}) SELECT 1 / (count(*) = 1)::int FROM changed"  # noqa: S608  our own


def _run(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    cursor.execute(statement.sql, statement.parameters)
    return _rows(cursor.cursor, statement)


def _found(cursor: Any, statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each, from psycopg's own cursor."""
    found: list[list[tuple[Any, ...]]] = []
    for statement in statements:
        if found:
            cursor.nextset()
        found.append(_rows(cursor, statement))
    return found


def _rows(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    if statement.rows not in {None, cursor.rowcount}:
        raise UnexpectedRows(f"{cursor.rowcount} rows instead of {statement.rows} by {statement.sql.strip()[:60]}")
    # not `description`, which would describe every column
    return cursor.fetchall() if cursor.pgresult.nfields else []


class _Session:
    """Prepared statements of a connection. `prepares`: False behind a pooler, None unknown."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self._uses = Counter[str]()
        self.prepares: bool | None = None

    def call(self, connection: psycopg.Connection[Any], sql: str) -> str:
        """Return the text to send at a use of a statement that has none in `calls` yet."""
        self._uses[sql] += 1
        if self._uses[sql] < USES:
            return sql
        if self.prepares is None:
            self.prepares = not is_pooled(connection)
        self.calls[sql] = _prepared(connection, sql) if self.prepares else sql
        return self.calls[sql]


_sessions = WeakKeyDictionary[psycopg.Connection[Any], _Session]()


def prepared_texts(connection: psycopg.Connection[Any], statements: Iterable[str]) -> list[str]:
    """Return the texts to send in place of statements, with the same placeholders in order.

    Args:
        connection: their destination. Preparing costs one round trip a statement, once.
        statements: texts that are the same every time; none is ever forgotten.

    Raises:
        psycopg.Error: the connection is not usable.
    """
    session = _sessions.get(connection)
    if session is None:
        session = _sessions[connection] = _Session()
    return [session.calls.get(sql) or session.call(connection, sql) for sql in statements]


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a pooler (PgBouncer) is before the server. One round trip.

    PostgreSQL reports its process id at the start; a pooler reports one of its own making. Where it pools by
    transaction, the next client gets the session that we have just used.
    """
    reported = connection.info.backend_pid
    return connection.execute("SELECT pg_backend_pid()").fetchone() != (reported,)


def _stop_preparing(connection: psycopg.Connection[Any]) -> None:
    """Prepare nothing more on a connection that refused a prepared statement as `STALE`."""
    session = _sessions.get(connection)
    if session is not None:
        session.prepares = False
        session.calls.clear()


def _prepared(connection: psycopg.Connection[Any], sql: str) -> str:
    numbers = count(1)
    numbered = re.sub("%s|%%", lambda found: f"${next(numbers)}" if found[0] == "%s" else "%", sql)
    name = f"payonce_{hashlib.sha256(sql.encode()).hexdigest()[:16]}"
    connection.execute(f"PREPARE {name} AS {numbered}".encode())
    places = ", ".join(["%s"] * (next(numbers) - 1))
    return f"EXECUTE {name} ({places})" if places else f"EXECUTE {name}"


def lock_timeout(wait_seconds: float | None) -> str:
    """Format a wait for `lock_timeout`, an integer in milliseconds, where 0 is for ever."""
    return "0" if wait_seconds is None else str(max(1, math.ceil(min(wait_seconds * 1000, 2**31 - 1))))


def broken_constraint(error: IntegrityError) -> str | None:
    """Return the name of the constraint that was broken; None if the server names none."""
    name: str | None = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
    return name
