"""Locks of PostgreSQL: by name for a session or a transaction, on rows; and a fence against stale holders.

They need nothing but the database, and no lease: a lock ends with its transaction or its connection, which the
server sees end when a process dies, and within `session.DEAD_PEER_SECONDS` when a machine does. `transaction_lock`
and `locked` are for work that is one transaction. `AdvisoryLock` is for work that is not; its holder may be
stopped while its connection ends, so it writes through `write_fenced`.

Never polls, never retries, never holds a lock on Django's own connection beyond its transaction.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from django.db import OperationalError, connections, transaction
from django.db.models import Model, QuerySet

from idempotency.locks.engine.advisory import AdvisoryLock, AsyncAdvisoryLock
from idempotency.locks.engine.session import LOCK_NOT_AVAILABLE, lock_key, milliseconds
from idempotency.locks.errors import LockError, LockLost, LockTimeout
from idempotency.names import schema

__all__ = ["AdvisoryLock", "AsyncAdvisoryLock", "StaleToken", "locked", "transaction_lock", "write_fenced"]

Row = TypeVar("Row", bound=Model)

QUERY_CANCELED = "57014"  # by statement_timeout


class StaleToken(LockLost):
    """The database refused a write: a later holder has written already."""


def transaction_lock(
    name: str, *, using: str = "default", wait_seconds: float | None = None, shared: bool = False
) -> None:
    """Lock `name` until the caller's transaction ends: the commit releases it, with or without a pooler.

    A rollback to a savepoint that is older than the lock releases it too. The same name as an `AdvisoryLock` is
    the same lock, and another holder.

    Args:
        name: any text; each schema of the database has locks of its own (`idempotency.names`).
        using: alias of the database.
        wait_seconds: None for as long as the connection's own limits let it, 0 not at all.
        shared: with others that are shared.

    Raises:
        LockError: no transaction is open.
        LockTimeout: not free in time, or a shorter `statement_timeout`; the transaction goes on as it was.

    Transaction: needs the caller's.
    """
    with _within(using, wait_seconds, f"{name!r}"), connections[using].cursor() as cursor:
        waits = wait_seconds is None or wait_seconds > 0
        function = f"pg_{'' if waits else 'try_'}advisory_xact_lock{'_shared' if shared else ''}"
        cursor.execute(f"SELECT {function}(%s)", [lock_key(name, schema=schema(using))])
        if not waits and not cursor.fetchone()[0]:
            raise LockTimeout(f"{name!r} is not free.")


def locked(queryset: QuerySet[Row], *, wait_seconds: float | None = None, skip_locked: bool = False) -> list[Row]:
    """Lock rows FOR UPDATE until the caller's transaction ends, and return them.

    Always in the order of their primary keys, and no row of another table with them, so callers of the same rows
    wait for each other and do not deadlock.

    Args:
        queryset: a slice of it must be ordered by ``pk`` before it is taken.
        wait_seconds: for each row that is locked: None for as long as the connection's own limits let it, 0 not at
            all.
        skip_locked: leave out rows that others have locked, and do not wait.

    Raises:
        LockError: no transaction is open.
        LockTimeout: a row was not free in time, or a shorter `statement_timeout`; none is locked by this call, and
            the transaction goes on as it was.

    Transaction: needs the caller's.
    """
    if skip_locked and wait_seconds is not None:
        raise ValueError("skip_locked does not wait: wait_seconds must be None")
    at_once = wait_seconds is not None and wait_seconds <= 0
    # only its own rows: those of joined tables would be locked in no defined order
    rows = queryset.select_for_update(nowait=at_once, skip_locked=skip_locked, of=("self",))
    if not queryset.query.is_sliced:
        rows = rows.order_by("pk")
    elif tuple(queryset.query.order_by) != ("pk",):
        raise ValueError('a slice must be ordered by "pk" before it is taken')
    with _within(rows.db, wait_seconds, f"A row of {queryset.model._meta.label}"):
        return list(rows)


def write_fenced(queryset: QuerySet[Any], *, token: int, fence_field: str = "fence", **changes: Any) -> None:
    """Write under a lock whose holder may be stale: one UPDATE, refused if a later holder has written before.

    Args:
        queryset: one row.
        token: fencing token of the writer's lock.
        fence_field: integer column, not null, beginning with 0: the highest token that wrote; set to `token`.
        **changes: fields and their new values.

    Raises:
        StaleToken: the row has a higher fence (or is not there); nothing was written.

    Transaction: one statement; joins the caller's if there is one.
    """
    if not queryset.filter(**{f"{fence_field}__lte": token}).update(**{**changes, fence_field: token}):
        raise StaleToken(
            f"A row of {queryset.model._meta.label} refused token {token}: a later holder has written."
        )


@contextlib.contextmanager
def _within(using: str, wait_seconds: float | None, what: str) -> Iterator[None]:
    """Open a savepoint that bounds waits for locks; a failed wait breaks nothing outside."""
    connection = connections[using]
    if connection.get_autocommit():
        raise LockError(f"{what}: no transaction is open. A lock released before commit protects nothing.")
    bounded = wait_seconds is not None and wait_seconds > 0
    try:
        with transaction.atomic(using=using):
            before = _set_lock_timeout(using, milliseconds(wait_seconds)) if bounded else None
            yield
            if before is not None:  # the rollback of a failed wait undoes it, a released savepoint does not
                _set_lock_timeout(using, before)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) in {LOCK_NOT_AVAILABLE, QUERY_CANCELED}:
            raise LockTimeout(f"{what} was not free within {wait_seconds} s.") from error
        raise


def _set_lock_timeout(using: str, value: str) -> str:
    """Set it for the rest of the transaction, and return its value before."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS value) "
            "SELECT value, set_config('lock_timeout', %s, true) FROM before",
            [value],
        )
        before: str = cursor.fetchone()[0]
        return before
