"""Advisory locks of a session, by name; public in `idempotency.locks.postgres`.

Never polls, never retries, never uses Django's own connection.
"""

import asyncio
import contextlib
import math
import os
from functools import partial
from typing import Any, Unpack

from django.db import connections

from idempotency.locks.engine import holder
from idempotency.locks.engine.blocking import BesideTheLoop, Blocking
from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.counted import Counted, Desk, Settings
from idempotency.locks.engine.session import Session, lock_key, look
from idempotency.locks.engine.steps import Steps, Wait, Work, operation
from idempotency.locks.state import Owner, State
from idempotency.names import schema

_desk = Desk()
os.register_at_fork(
    before=_desk.guard.acquire, after_in_parent=_desk.guard.release, after_in_child=_desk.guard.release
)


class _Readable:
    """Bell that rings when a reply has come."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def wait(self, seconds: float) -> Any:
        return self._session.readable(seconds=None)


class _ReadableInLoop(_Readable):
    async def wait(self, seconds: float) -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._session.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._session.fileno())


class Advisory(Counted):
    """Source of `AdvisoryLock` and `AsyncAdvisoryLock`; see `Counted` for its operations.

    Two sessions that wait for each other crosswise are no deadlock that PostgreSQL sees: set `wait_seconds`.

    Args:
        name: any text; the same name is the same lock in the whole database, or schema of a tenant, for
            `transaction_lock` too.
        using: alias of the database. It must lead to PostgreSQL itself, not to a pooler.
        settings: as of `Counted`; connecting does not count as waiting. Only asyncio has `on_lost`.

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
        session = Session(
            self.name,
            self._holder(),
            parameters,
            schema=schema(self._using),
            shared=self._shared,
            notify=self._listeners or None,
        )
        self._waits.add(session)
        try:
            yield Work(partial(session.ask, wait_seconds))
            while session.busy():
                yield Wait(self._bell(session), math.inf)  # the server counts the time
            taken: bool = yield Work(session.answer)
        except GeneratorExit:  # nobody performs steps any more
            raise
        except BaseException:
            yield Work(session.abandon)
            raise
        finally:
            self._waits.discard(session)
        if taken and "lost" in self._listeners.calls:
            self._watch(session)
        return session if taken else None

    def _cancel(self, wait: Session) -> Steps[None]:
        yield Work(wait.cancel)

    def _give_back(self, hold: Session) -> Steps[bool]:
        hold.unwatch()
        whole: bool = yield Work(hold.let_go)
        return whole

    def _desk(self) -> Desk:
        return _desk

    def _key(self) -> tuple[str, ...]:
        return holder.process, self._using, schema(self._using), self.name, self._holder().name


class AdvisoryLock(WithStatement, Advisory, Blocking):
    """Lock for threads and processes; see `Advisory` for its arguments."""

    _heard = frozenset({"released"})
    _bell = _Readable


class AsyncAdvisoryLock(AsyncWithStatement, Advisory, BesideTheLoop):
    """`AdvisoryLock` for asyncio, on loops that watch sockets (`add_reader`)."""

    _bell = _ReadableInLoop

    def _watch(self, hold: Session) -> None:
        loop, socket = asyncio.get_running_loop(), hold.fileno()

        def unwatch() -> None:
            hold.unwatch = lambda: None  # once: the number may be another socket's by then
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if asyncio._get_running_loop() is loop:
                    loop.remove_reader(socket)
                else:  # an owner's release elsewhere
                    loop.call_soon_threadsafe(loop.remove_reader, socket)

        hold.unwatch = unwatch
        loop.add_reader(socket, lambda: hold.ended)  # which notices it
