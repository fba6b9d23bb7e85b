"""Advisory locks of a session, by name; public in `idempotency.locks.postgres`.

Never polls, never retries, never uses Django's own connection.
"""

import asyncio
import math
import os
import threading
from functools import partial
from typing import Any, TypeVar

from django.db import connections

from idempotency.locks.engine import holder
from idempotency.locks.engine.blocking import BesideTheLoop, Blocking, answer, answer_beside
from idempotency.locks.engine.contexts import DEFAULT, AsyncWithStatement, Entered, WithStatement
from idempotency.locks.engine.session import Session
from idempotency.locks.engine.steps import Step, Steps, Wait, Work, operation, perform, perform_async
from idempotency.locks.errors import LockLost, NotHeld
from idempotency.names import schema

T = TypeVar("T")

# by process (a fork's child holds nothing), database, schema, lock and holder
_sessions: dict[tuple[str, str, str, str, str], Session] = {}
_guard = threading.Lock()
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


class Advisory(Entered):
    """Source of `AdvisoryLock` and `AsyncAdvisoryLock`.

    A thread or task that ends without a release leaves it locked until its process ends, or locks anything here.
    Two sessions that wait for each other crosswise are no deadlock that PostgreSQL sees: set `wait_seconds`.

    Args:
        name: any text; the same name is the same lock in the whole database, or schema of a tenant, for
            `transaction_lock` too.
        using: alias of the database. It must lead to PostgreSQL itself, not to a pooler.
        owner: holder's name, for code that acquires in one thread and releases in another of this process; unique,
            or two callers are taken for one. None: the running thread or task.
        wait_seconds: how long `with` and `acquire` wait, connecting not counted: None for ever, 0 not at all.

    Transaction: apart from the caller's; each holder has a connection of its own while it waits and holds.
    """

    def __init__(
        self, name: str, *, using: str = "default", owner: str | None = None, wait_seconds: float | None = None
    ) -> None:
        self.name = name
        self._using = using
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take it, once more if the caller holds it already.

        Args:
            wait_seconds: instead of the constructor's.

        Returns:
            True if it is held now; False when the time was over.

        Raises:
            LockError: a connection pooler stands before the database.
            LockLost: the caller held it already, and its connection ended since.
            LockUnavailable: the server did not answer; it is not held.
        """
        _drop_those_of_the_dead()
        place = self._place()
        with _guard:
            if known := _sessions.get(place):
                if known.dead():
                    raise self._lost()
                known.depth += 1
                return True
        parameters = connections[self._using].get_connection_params()
        session = Session(self.name, self._holder(), parameters, schema=schema(self._using))
        try:
            yield Work(partial(session.ask, self._limit(wait_seconds)))
            while session.busy():
                yield Wait(session, math.inf)  # the server counts the time
            taken: bool = yield Work(session.answer)
        except GeneratorExit:  # nobody performs steps any more
            raise
        except BaseException:
            yield Work(session.abandon)
            raise
        if taken:
            with _guard:
                _sessions[place] = session
        return taken

    @operation
    def release(self) -> Steps[None]:
        """Give it back, or one acquire of several.

        Raises:
            NotHeld: the caller does not hold it; nothing changed.
            LockLost: the caller held it, but its connection ended before.
        """
        place = self._place()
        with _guard:
            session = _sessions.get(place)
            if session is None:
                raise NotHeld(f"{self.name!r} is not held by this thread, task or owner.")
            session.depth -= 1
            last = session.depth == 0
            if last:
                del _sessions[place]
        whole = (yield Work(session.let_go)) if last else not session.dead()
        if not whole:
            raise self._lost()

    @property
    def held(self) -> bool:
        """True while the caller holds it, as far as this machine knows without asking."""
        session = _sessions.get(self._place())
        return session is not None and not session.dead()

    @property
    def lost(self) -> bool:
        """True if the caller's connection ended without a release: stop the work."""
        session = _sessions.get(self._place())
        return session is not None and session.dead()

    @property
    def token(self) -> int | None:
        """Fencing token of the caller's hold: higher than every earlier holder's. None if not held.

        It grows as long as the database cluster lives. Rows brought to another cluster (dump and restore, a
        replica promoted that lagged) may have fences above its tokens.
        """
        session = _sessions.get(self._place())
        return None if session is None else session.token

    def _holder(self) -> holder.Holder:
        return self._owner or holder.current()

    def _place(self) -> tuple[str, str, str, str, str]:
        return holder.process(), self._using, schema(self._using), self.name, self._holder().name

    def _lost(self) -> LockLost:
        return LockLost(f"{self.name!r}: the connection that held it ended before its release.")


class AdvisoryLock(WithStatement, Advisory, Blocking):
    """Lock for threads and processes; see `Advisory` for its arguments."""

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, self._perform)

    def _perform(self, step: Step) -> Any:
        return step.bell.readable(seconds=None) if isinstance(step, Wait) else answer(step)


class AsyncAdvisoryLock(AsyncWithStatement, Advisory, BesideTheLoop):
    """`AdvisoryLock` for asyncio, on loops that watch sockets (`add_reader`).

    It waits in the loop: the threads beside it are few, and waiters could leave none for a release.
    """

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self._perform)

    async def _perform(self, step: Step) -> Any:
        return await (_readable(step.bell) if isinstance(step, Wait) else answer_beside(step))


async def _readable(session: Session) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(session.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(session.fileno())


def _drop_those_of_the_dead() -> None:
    """Abandon the sessions of holders that are gone; a fork's child leaves its parent's alone."""
    with _guard:
        ours = [place for place in _sessions if place[0] == holder.process()]
        gone = [_sessions.pop(place) for place in ours if not _sessions[place].holder.alive()]
    for session in gone:
        session.abandon()
