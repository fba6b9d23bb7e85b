"""Locks with one holder of every implementation, for their one conformance test."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection
from kazoo.client import KazooClient

from idempotency.locks import postgres
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock
from idempotency.locks.zookeeper import ROOT, AsyncZooKeeperLock, ZooKeeperLock
from tests.integration.idempotency.locks.actors import Faced, until
from tests.threads import at_once
from tests.zookeeper_server import ZooKeeperServer


class Mutexes:
    """Locks of one class over one server, for the actors of `faced`."""

    leases = hears_force = True

    def __init__(self, faced: Faced) -> None:
        self.faced = faced

    def make(self, name: str = "thing", *, apart: bool = False, **settings: Any) -> Any:
        """The lock; `apart` over another session, where there are some."""
        raise NotImplementedError

    def waits(self, lock: Any, count: int) -> None:
        """Until `count` wait, as the server says."""
        other = self.faced.actor()
        until(lambda: other.do(lock.waiters) == count, f"{count} wait")

    def close(self) -> None:
        """Nothing is left."""


class OverRedis(Mutexes):
    """A kind of `idempotency.locks`, or the writer's side."""

    def __init__(self, bench: Any, kind: str) -> None:
        super().__init__(bench)
        self._bench, self._kind = bench, kind

    def make(self, name: str = "thing", *, apart: bool = False, **settings: Any) -> Any:
        if self._kind == "write":
            return self._bench.make("ReadWriteLock", name, **settings).write
        return self._bench.make(self._kind, name, **settings)

    def readers_and_writers(self) -> tuple[Any, Any]:
        lock = self._bench.make("ReadWriteLock")
        return lock.read, lock.write

    def waits(self, lock: Any, count: int) -> None:
        self._bench.waits(count, lock.name, lock._kind)

    def lose(self, lock: Any) -> None:
        """The server knows nothing of its hold any more."""
        self._bench.forget()


class OfSessions(Mutexes):
    """PostgreSQL or ZooKeeper."""

    leases = False

    def readers_and_writers(self) -> tuple[Any, Any]:
        return self.make(shared=True), self.make()


class OverPostgres(OfSessions):
    def make(self, name: str = "thing", *, apart: bool = False, **settings: Any) -> Any:
        return (AsyncAdvisoryLock if self.faced.loop else AdvisoryLock)(name, **settings)

    def lose(self, lock: Any) -> None:
        at_once(terminate)

    def waits(self, lock: Any, count: int) -> None:
        waits(count)

    def close(self) -> None:
        nothing_is_left()


class OverZooKeeper(OfSessions):
    hears_force = False  # but by a listener

    def __init__(self, faced: Faced, server: ZooKeeperServer, connect: Callable[[], KazooClient]) -> None:
        super().__init__(faced)
        self._server, self._connect, self._shared = server, connect, connect()

    def make(self, name: str = "order/7 ü", *, apart: bool = False, **settings: Any) -> Any:
        kind = AsyncZooKeeperLock if self.faced.loop else ZooKeeperLock
        return kind(name, client=self._connect() if apart else self._shared, **settings)

    def lose(self, lock: Any) -> None:
        end_session(self._server, lock._client)


@contextlib.contextmanager
def sessions(server: ZooKeeperServer, kind: type[KazooClient] = KazooClient) -> Iterator[Callable[[], Any]]:
    """Makes started clients, each a session of its own; there are no locks before."""
    made: list[KazooClient] = []

    def connect() -> KazooClient:
        made.append(kind(server.hosts, timeout=20.0))
        made[-1].start()
        return made[-1]

    if connect().exists(ROOT):
        made[0].delete(ROOT, recursive=True)
    yield connect
    for client in made:
        client.stop()
        client.close()


def end_session(server: ZooKeeperServer, client: KazooClient) -> None:
    """The server forgets the session of a client that lives: another one closes it in its name."""
    session = client.client_id
    while client.client_id in {None, session}:  # its own reconnection may take the session back
        other = KazooClient(server.hosts, client_id=session)
        other.start()
        other.stop()
        other.close()


def asked(question: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question, parameters)
        return [row[0] for row in cursor.fetchall()]


def waits(count: int) -> None:
    """Until so many wait for a lock of any kind."""
    until(lambda: asked("SELECT count(*) FROM pg_locks WHERE NOT granted") == [count], f"{count} wait")


def terminate() -> None:
    """The backend that holds an advisory lock is ended, and gone afterwards."""
    ended = asked("SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    assert ended == [True]


def abandon_the_dead() -> None:
    """Close the sessions of holders that ended."""
    for session in postgres._desk.pop_dead():
        session.abandon()


def nothing_is_left() -> None:
    """No session of a lock, holding or waiting, but of the dead."""
    abandon_the_dead()
    assert not postgres._desk.holds
    question = (
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'lock %%' AND datname = current_database()"
    )
    until(lambda: not asked(question), "no lock's session is left")
