"""Statements by hand, sent together: where a round trip and the ORM's compiler cost more than the work itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.db import IntegrityError, connection
from django.db.models import Model

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL, without a semicolon.

    Attributes:
        sql: with a placeholder for each parameter.
        rows: how many rows it must change or return; None: it may be any number.
    """

    sql: str
    parameters: Sequence[Any]
    rows: int | None = None


def send(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    """Run them in order, in one round trip where the driver takes several; the rows that each returned.

    Each reads by a snapshot of its own, as if it came alone. Where one fails, those after it do not run.

    Raises:
        RuntimeError: one changed another number of rows than it must.

    Transaction: needs the caller's, which must roll back if this raises; one that is alone needs none.
    """
    if not statements:
        return []
    with connection.cursor() as cursor:
        if not takes_several():
            return [_run(cursor, statement) for statement in statements]
        together = "; ".join(statement.sql for statement in statements)
        cursor.execute(together, [value for statement in statements for value in statement.parameters])
        found = []
        for statement in statements:
            found.append(_rows(cursor, statement))
            cursor.nextset()
        return found


def instances(model: type[M], columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[M]:
    """Rows as instances of their model; a column that is not among them is fetched when somebody asks for it.

    Args:
        columns: of the rows, in the order in which the model names its fields.

    Raises:
        ValueError: they are in another order, in which Django would mix the values up.
    """
    _refuse_disorder(model, tuple(columns))
    return [model.from_db(connection.alias, columns, row) for row in rows]


@cache
def _refuse_disorder(model: type[Model], columns: tuple[str, ...]) -> None:
    ordered = tuple(field.attname for field in model._meta.concrete_fields if field.attname in columns)
    if columns != ordered:
        raise ValueError(f"{model.__name__} is made of {', '.join(ordered)}, in this order")


def broken_constraint(error: IntegrityError) -> str | None:
    """Name of the constraint that the server says was broken; None where it names none."""
    name: str | None = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
    return name


def takes_several() -> bool:
    """Whether the driver takes several at once: with server-side binding of parameters it takes one."""
    return not connection.settings_dict["OPTIONS"].get("server_side_binding")


def _run(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    cursor.execute(statement.sql, statement.parameters)
    return _rows(cursor, statement)


def _rows(cursor: Any, statement: Statement) -> list[tuple[Any, ...]]:
    if statement.rows not in {None, cursor.rowcount}:
        raise RuntimeError(f"{cursor.rowcount} rows instead of {statement.rows} by {statement.sql.strip()[:60]}")
    return cursor.fetchall() if cursor.description else []
