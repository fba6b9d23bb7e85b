"""Statements by hand, sent together: where a round trip and the ORM's compiler cost more than the work itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, DatabaseError, IntegrityError, connections
from django.db.models import Model
from psycopg.pq import TransactionStatus

from idempotency.postgres import prepared
from idempotency.postgres.cursors import cursor_of

M = TypeVar("M", bound=Model)

IDLE = TransactionStatus.IDLE
DIVISION_BY_ZERO = "22012"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL, without a semicolon.

    Attributes:
        sql: with a placeholder for each parameter; a SELECT, INSERT, UPDATE or DELETE, and one of few texts, for
            each is planned and kept.
        rows: how many rows it must change or return; None: it may be any number.
        certain: it fails by itself where that would be another number.
    """

    sql: str
    parameters: Sequence[Any]
    rows: int | None = None
    certain: bool = False


class UnexpectedRows(RuntimeError):
    """A statement changed another number of rows than it must; what was sent with it must be rolled back."""


def send(*statements: Statement, commit: bool = False) -> list[list[tuple[Any, ...]]]:
    """Run them in order, in one round trip where the driver takes several; the rows that each returned.

    Each reads by a snapshot of its own, as if it came alone. Where one fails, those after it do not run. If they
    are the first of their transaction, its BEGIN goes with them.

    Args:
        commit: they are the last of their transaction, and its COMMIT may go with them. As nobody can look at
            their counts before, an UPDATE that must change one row, and returns it, is made to fail by itself;
            with another one that is not `certain` the COMMIT does not go.

    Raises:
        UnexpectedRows: one changed another number of rows than it must.

    Transaction: needs the caller's, which must roll back if this raises; one that is alone needs none.
    """
    if not statements:
        return []
    database = connections[DEFAULT_DB_ALIAS]  # once: each look through the proxy takes longer than what it finds
    if not _takes_several(database):
        with database.cursor() as cursor:
            return [_run(cursor, statement) for statement in statements]
    commit = commit and _may_commit(database) and all(map(_is_certain, statements))
    try:
        return _sent(database, statements, commit=commit)
    except DatabaseError as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state in prepared.STALE:
            prepared.stop(database.connection)
        if commit and state == DIVISION_BY_ZERO:
            raise UnexpectedRows("none was changed that must be") from error
        raise


def _sent(database: Any, statements: Sequence[Statement], *, commit: bool) -> list[list[tuple[Any, ...]]]:
    cursor = cursor_of(database)
    database.validate_no_broken_transaction()
    raw = database.connection
    texts = [_sure(statement) if commit else statement.sql for statement in statements]
    with database.wrap_database_errors:
        texts = prepared.texts(raw, texts)
    values = [value for statement in statements for value in statement.parameters]
    begins = _begins_here(database)
    if begins:
        # psycopg would send its own BEGIN first, and wait for it; now ours goes with them. Django's COMMIT or
        # ROLLBACK it sends in either case
        raw._autocommit = True
    try:
        with database.wrap_database_errors:
            cursor.execute("; ".join(["BEGIN"] * begins + texts + ["COMMIT"] * commit), values)
    finally:
        if begins:
            raw._autocommit = False  # its public setter refuses inside a transaction
    return _found(getattr(cursor, "cursor", cursor), statements, begins=begins)


def _may_commit(database: Any) -> bool:
    """Whether the open transaction is ours alone: inside a test case's one, a commit would make its rows stay.

    Leaving Django's `atomic` after it finds nothing left to commit, and runs what waits for the commit.
    """
    return database.in_atomic_block and not database.savepoint_ids


def _takes_several(database: Any) -> bool:
    """Whether the driver takes several at once: with server-side binding of parameters it takes one."""
    return not database.settings_dict["OPTIONS"].get("server_side_binding")


def _is_certain(statement: Statement) -> bool:
    return statement.rows is None or statement.certain or _is_update_of_one(statement)


def _is_update_of_one(statement: Statement) -> bool:
    return statement.rows == 1 and statement.sql.lstrip().startswith("UPDATE")


def _sure(statement: Statement) -> str:
    """It, failing on the server where it changes no row but must."""
    if not _is_update_of_one(statement):
        return statement.sql
    return f"WITH changed AS ({statement.sql}) SELECT 1 / (count(*) = 1)::int FROM changed"  # noqa: S608  our own


def _begins_here(database: Any) -> bool:
    """Whether Django has opened a transaction of which the server knows nothing yet; its BEGIN may be ours then.

    Another isolation or access than the server's default is said in psycopg's own BEGIN, which is left to it.
    """
    raw = database.connection
    usual = raw.isolation_level is None and raw.read_only is None and raw.deferrable is None
    fresh: bool = database.in_atomic_block and not raw.autocommit and raw.info.transaction_status == IDLE
    return fresh and usual


def _run(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    cursor.execute(statement.sql, statement.parameters)
    return _rows(cursor.cursor, statement)


def _found(cursor: Any, statements: Sequence[Statement], *, begins: bool) -> list[list[tuple[Any, ...]]]:
    """What each has returned, from psycopg's own cursor."""
    if begins:
        cursor.nextset()
    found = []
    for statement in statements:
        found.append(_rows(cursor, statement))
        cursor.nextset()
    return found


def _rows(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    if statement.rows not in {None, cursor.rowcount}:
        raise UnexpectedRows(f"{cursor.rowcount} rows instead of {statement.rows} by {statement.sql.strip()[:60]}")
    # its `description` would describe every column, only to say that there are some
    return cursor.fetchall() if cursor.pgresult.nfields else []


def instances(model: type[M], columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[M]:
    """Rows as instances of their model; a column that is not among them is fetched when somebody asks for it.

    Args:
        columns: of the rows, in the order in which the model names its fields.

    Raises:
        ValueError: they are in another order, in which Django would mix the values up.
    """
    _refuse_disorder(model, tuple(columns))
    return [model.from_db(DEFAULT_DB_ALIAS, columns, row) for row in rows]


@cache
def _refuse_disorder(model: type[Model], columns: tuple[str, ...]) -> None:
    ordered = tuple(field.attname for field in model._meta.concrete_fields if field.attname in columns)
    if columns != ordered:
        raise ValueError(f"{model.__name__} is made of {', '.join(ordered)}, in this order")


def broken_constraint(error: IntegrityError) -> str | None:
    """Name of the constraint that the server says was broken; None where it names none."""
    name: str | None = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
    return name
