"""Locks of PostgreSQL: of sessions, transactions, rows; and a fence against stale holders.

They need nothing but the database, and no lease: a lock ends with its transaction or its connection, which the
server sees end when a process dies, and within `session.DEAD_PEER_SECONDS` when a machine does. `transaction_lock`
and `locked` are for work that is one transaction. `AdvisoryLock` is for work that is not; its holder may be
stopped while its connection ends, so it writes through `write_fenced`.

Never polls for a lock, never retries, never holds a lock on Django's own connection beyond its transaction.
"""

import asyncio
import contextlib
import math
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar, Unpack

from django.db import OperationalError, connections, transaction
from django.db.models import Model, QuerySet

from idempotency.arguments import BIGINT_MAX, text, waiting, whole_number
from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.counted import Counted, Desk, Settings
from idempotency.locks.engine.session import Session, lock_key, look
from idempotency.locks.engine.steps import BesideTheLoop, Blocking, Steps, Wait, Work, operation
from idempotency.locks.errors import LockError, LockLost, LockTimeout
from idempotency.locks.state import Owner, State
from idempotency.names import schema
from idempotency.observability.background import Worker
from idempotency.postgres.statements import LOCK_NOT_AVAILABLE, lock_timeout

__all__ = ["AdvisoryLock", "AsyncAdvisoryLock", "StaleToken", "locked", "transaction_lock", "write_fenced"]

Row = TypeVar("Row", bound=Model)

QUERY_CANCELED = "57014"  # by statement_timeout
LOOK_SECONDS = 1.0  # between looks whether a session has ended that is listened to


class StaleToken(LockLost):
    """The database refused a write: a later holder has written already."""


def transaction_lock(
    name: str, *, using: str = "default", wait_seconds: float | None = None, shared: bool = False
) -> None:
    """Lock `name` until the caller's transaction ends, behind a pooler too.

    A rollback to an older savepoint releases it too. An `AdvisoryLock` of the name is the same lock.

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
    waits, key = waiting(wait_seconds) != 0, lock_key(text("name", name), schema=schema(using))
    with _within(using, wait_seconds, f"{name!r}"), connections[using].cursor() as cursor:
        function = f"pg_{'' if waits else 'try_'}advisory_xact_lock{'_shared' if shared else ''}"
        cursor.execute(f"SELECT {function}(%s)", [key])
        if not waits and not cursor.fetchone()[0]:
            raise LockTimeout(f"{name!r} is not free.")


def locked(queryset: QuerySet[Row], *, wait_seconds: float | None = None, skip_locked: bool = False) -> list[Row]:
    """Lock rows FOR UPDATE until the caller's transaction ends, and return them.

    Always in the order of their primary keys, and no row of another table with them, so callers of the same rows
    wait for each other and do not deadlock.

    Args:
        queryset: a slice of it must be ordered by ``pk`` before it is taken.
        wait_seconds: for each row: None for as long as the connection's own limits let it, 0 not at all.
        skip_locked: leave out rows that others have locked, and do not wait.

    Raises:
        LockError: no transaction is open.
        LockTimeout: a row was not free in time, or a shorter `statement_timeout`; the transaction goes on.

    Transaction: needs the caller's.
    """
    if skip_locked and wait_seconds is not None:
        raise ValueError("skip_locked does not wait: wait_seconds must be None")
    if queryset.query.combinator:  # Django would leave FOR UPDATE out
        raise ValueError("PostgreSQL locks no rows of a union and its like: lock those of each queryset")
    # only its own rows: those of joined tables would be locked in no defined order
    rows = queryset.select_for_update(nowait=waiting(wait_seconds) == 0, skip_locked=skip_locked, of=("self",))
    if not queryset.query.is_sliced:
        rows = rows.order_by("pk")
    elif tuple(queryset.query.order_by) != ("pk",):
        raise ValueError('a slice must be ordered by "pk" before it is taken')
    with _within(rows.db, wait_seconds, f"A row of {queryset.model._meta.label}"):
        return list(rows)


def write_fenced(queryset: QuerySet[Any], *, token: int, fence_field: str = "fence", **changes: Any) -> None:
    """Write by one UPDATE, which is refused if a later holder of the lock has written before.

    Args:
        queryset: one row.
        token: fencing token of the writer's lock.
        fence_field: integer column, not null, beginning with 0: the highest token that wrote; set to `token`.
        **changes: fields and their new values.

    Raises:
        StaleToken: the row has a higher fence (or is not there); nothing was written.

    Transaction: one statement; joins the caller's if there is one.
    """
    whole_number("token", token, most=BIGINT_MAX)
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
    try:
        with transaction.atomic(using=using):
            before = _set_lock_timeout(using, lock_timeout(wait_seconds)) if wait_seconds else None
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
        return str(cursor.fetchone()[0])


_desk = Desk()
os.register_at_fork(
    before=_desk.guard.acquire, after_in_parent=_desk.guard.release, after_in_child=_desk.guard.release
)
_listened: set[Session] = set()  # of threads
os.register_at_fork(after_in_child=_listened.clear)


def _look(worker: Worker) -> None:
    while not worker.stopping.wait(LOOK_SECONDS):
        over = {session for session in list(_listened) if not session.notify or session.ended}
        with _desk.guard:  # who adds one has seen whether another is there
            _listened.difference_update(over)
            if not _listened:
                return


class _ReadableInLoop:
    """Bell of a loop that rings when a session's reply has come."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def wait(self, seconds: float) -> bool:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._session.fileno(), readable.set)
        try:
            async with asyncio.timeout(seconds):
                return await readable.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._session.fileno())


class Advisory(Counted):
    """Source of `AdvisoryLock` and `AsyncAdvisoryLock`; see `Counted` for its operations.

    Two sessions that wait for each other crosswise are no deadlock that PostgreSQL sees: set `wait_seconds`.

    Args:
        name: any text; the same name is the same lock in the whole database, or schema of a tenant, for
            `transaction_lock` too.
        using: alias of the database. It must lead to PostgreSQL itself, not to a pooler.
        settings: as of `Counted`; connecting does not count as waiting. `on_lost` is called within a second.

    Transaction: apart from the caller's; each holder has a connection of its own while it waits and holds.
    """

    _watch: Any
    _bell: Any

    def __init__(self, name: str, *, using: str = "default", **settings: Unpack[Settings]) -> None:
        super().__init__(name, **settings)
        self._using = using

    @operation
    def force_release(self) -> Steps[bool]:
        """End the sessions that hold it, of a `transaction_lock` too. Return whether any did.

        The holder's `lost` is true at once. For another user's session PostgreSQL wants pg_signal_backend.
        """
        return any(ended for *_, ended in (yield self._look(ends_holders=True)))

    def _look(self, *, ends_holders: bool = False) -> Work:
        parameters = connections[self._using].get_connection_params()
        key = lock_key(self.name, schema=schema(self._using))
        return Work(partial(look, key, parameters, ends_holders=ends_holders))

    def _state(self) -> Steps[State]:
        rows = yield self._look()
        ours = {session.backend: session for session in _desk.all()}
        owners = []
        for _, backend, name, since, _ in (row for row in rows if row[0]):
            if mine := ours.get(backend):
                owners.append(Owner(mine.holder.name, mine.token, since, math.inf, mine.count))
            else:
                owners.append(Owner(name, None, since, math.inf, 1))
        return State(tuple(owners), tuple(name for granted, _, name, *_ in rows if not granted))

    def _take(self, wait_seconds: float | None) -> Steps[Session | None]:
        parameters = connections[self._using].get_connection_params()
        how: dict[str, Any] = {"schema": schema(self._using), "shared": self._shared, "notify": self._notify}
        session = Session(self.name, self._holder(), parameters, **how)
        self._waits.add(session)
        try:
            yield Work(partial(session.ask, wait_seconds))
            while session.busy():
                yield Wait(self._bell(session), session.patience())
            taken: bool = yield Work(session.answer)
            if taken and "lost" in self._listeners.calls:
                self._watch(session)
        except GeneratorExit:  # nobody performs steps any more
            raise
        except BaseException:
            yield Work(session.abandon)
            raise
        finally:
            self._waits.discard(session)
        return session if taken else None

    def _give_back(self, hold: Session) -> Steps[bool]:
        return (yield Work(hold.let_go))  # type: ignore[no-any-return]

    def _desk(self) -> Desk:
        return _desk

    def _key(self) -> tuple[str, ...]:
        return holder.process, self._using, schema(self._using), self.name, self._holder().name


class AdvisoryLock(WithStatement, Advisory, Blocking):
    """Lock for threads and processes; see `Advisory` for its arguments."""

    _bell = staticmethod(lambda session: session)  # which waits for itself

    def _watch(self, hold: Session) -> None:
        with _desk.guard:
            if not _listened:
                Worker("locks-sessions", _look).start()
            _listened.add(hold)


class AsyncAdvisoryLock(AsyncWithStatement, Advisory, BesideTheLoop):
    """`AdvisoryLock` for asyncio, on loops that watch sockets (`add_reader`)."""

    _bell = _ReadableInLoop

    def _watch(self, hold: Session) -> None:
        # not while it is released: that has the connection
        if hold.count and hold.notify and not hold.ended:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._watch, hold)
