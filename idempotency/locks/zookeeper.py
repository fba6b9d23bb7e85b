"""Locks of ZooKeeper, through kazoo: the first in a name's queue of nodes holds.

There is no lease to choose and nothing to renew: the session is the lease. kazoo keeps it alive by heartbeats;
when they stay away for its time-out (`KazooClient(timeout=…)`, seconds), the server deletes the node. A holder
that was stopped for longer, and goes on, is known by its `token`: give it to the resource that the lock protects.

Limits: the empty folder of a name stays, so names should be few (kazoo makes no container nodes). A forked child
needs a client of its own. Do not call the face of threads from kazoo's callbacks: they would wait for themselves.
"""

import math
from datetime import UTC, datetime
from typing import Any, ClassVar, Unpack
from urllib.parse import quote

from idempotency.extras import needed

with needed("zookeeper", by="idempotency.locks.zookeeper"):
    from kazoo.client import KazooClient

from idempotency.arguments import BIGINT_MAX, whole_number
from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import AsyncWithStatement, Common, WithStatement
from idempotency.locks.engine.counted import Counted, Desk, Settings
from idempotency.locks.engine.nodes import Place, desk_of
from idempotency.locks.engine.queues import NAME_MAX, Queue
from idempotency.locks.engine.steps import BesideTheLoop, Blocking, Steps, deadline_of, operation
from idempotency.locks.state import Numbered, Owner, State
from idempotency.redis.mailbox import Bell, TaskBell

ROOT = "/idempotency/locks"


class QueueLock(Counted):
    """Source of both faces of the lock, in the order of arrival; see `Counted`.

    Args:
        name: any text; the same name is the same lock everywhere below the client's chroot.
        client: a started KazooClient; its session is the lease.
        settings: as of `Counted`. Two threads of one `owner` that ask at the same moment queue behind each other.
            A silent server may take `queues.ANSWER_SECONDS` more than `wait_seconds`. `on_lost` costs a command,
            and runs on kazoo's thread: it must not wait for ZooKeeper.
    """

    _bell: ClassVar[type[Any]]
    _kind = "lock"
    _permits: int | None = None

    def __init__(self, name: str, *, client: KazooClient, **settings: Unpack[Settings]) -> None:
        super().__init__(name, **settings)
        if not isinstance(client, KazooClient):
            raise ValueError(f"client must be a KazooClient, not {client!r}")
        self._client = client
        self._queue = self._queue_of(self._kind, self._permits)
        self._queues = [self._queue]  # one after the other; to be first in the last one is to hold

    def _queue_of(self, kind: str, places: int | None = None) -> Queue:
        quoted = quote(self.name, safe="")
        if len(quoted) > NAME_MAX:  # the server would end the connection, again and again, and with it the session
            raise ValueError(f"name must be at most {NAME_MAX} characters as in a URL, not {len(quoted)}")
        return Queue(self._client, f"{ROOT}/{kind}-{quoted}", self._bell, places=places)

    @operation
    def contenders(self) -> Steps[list[str]]:
        """Ask who holds it and who waits, in the order of the queue. A command, and one for each."""
        names: list[str] = []
        for queue in reversed(self._queues):
            found = (yield from queue.contenders(holders=queue is not self._queues[0]))[1]
            names += [name.decode() for name, _ in found.values()]
        return names

    @operation
    def force_release(self, *, token: int | None = None) -> Steps[bool]:
        """Delete the holders' nodes, so that the next ones hold. Return if there were any.

        A holder with `on_lost` learns at once, and its `lost` is true; another at its release, by `LockLost`.

        Args:
            token: of the one hold to end; None ends every one.
        """
        if token is not None:
            whole_number("token", token, most=BIGINT_MAX)
        return (yield from self._queue.delete_holders(token))

    def _state(self) -> Steps[State]:
        nodes, holders = yield from self._queue.contenders(holders=True)
        if self._queues[0] is not self._queue:
            nodes = yield from self._queues[0].nodes()
        held = {hold.node: hold.count for hold in self._desk().all()}
        owners = []
        for node, (name, stat) in holders.items():
            since = datetime.fromtimestamp(stat.created, UTC)
            owners.append(Owner(name.decode(), stat.czxid, since, math.inf, held.get(node, 1)))
        return State(tuple(owners), tuple(node for node in nodes if node not in holders))

    def _take(self, wait_seconds: float | None) -> Steps[Place | None]:
        how: dict[str, Any] = {"client": self._client, "holder": self._holder(), "shared": self._shared}
        how |= {"ends_at": deadline_of(wait_seconds), "notify": self._notify}
        places = [Place(folder=queue.folder, **how) for queue in self._queues]
        places[-1].hears = "lost" in self._listeners.calls
        self._waits.update(places)
        try:
            for queue, place in zip(self._queues, places, strict=True):
                if (wait_seconds != 0 or queue is self._queue) and not (yield from queue.first(place)):
                    break
            else:
                yield from self._leave(places[:-1])
                return places[-1]
        except GeneratorExit:  # nobody performs steps any more
            for place in places:
                place.abandon()
            raise
        except BaseException:  # a cancellation too
            yield from self._leave(places)
            raise
        finally:
            self._waits.difference_update(places)
        yield from self._leave(places)
        return None

    def _leave(self, places: list[Place]) -> Steps[None]:
        for queue, place in reversed(list(zip(self._queues, places, strict=False))):
            yield from queue.leave(place)

    def _give_back(self, hold: Place) -> Steps[bool]:
        return not hold.ended and (yield from self._queue.give_back(hold))

    def _desk(self) -> Desk:
        return desk_of(self._client)

    def _key(self) -> tuple[str, ...]:
        return holder.process, self._queue.folder, self._holder().name


class QueuePermits(Numbered, QueueLock):
    """Source of both faces of `ZooKeeperSemaphore`. Concurrent tries may miss a permit.

    Args:
        permits: their number; every caller goes by its own.
        name, client, settings: as of the lock. Every acquire takes another permit, and wants a release.
    """

    _kind = "semaphore"

    def __init__(self, name: str, *, permits: int, client: KazooClient, **settings: Unpack[Common]) -> None:
        self._permits = whole_number("permits", permits)
        super().__init__(name, client=client, reentrant=False, **settings)
        self._queues = [self._queue_of("turn"), self._queue]

    def _numbers(self) -> Steps[tuple[int, int]]:
        permits = self._permits or 0
        return permits, min(len((yield from self._queue.nodes())), permits)


class ZooKeeperLock(WithStatement, QueueLock, Blocking):
    """Lock for threads and processes; see `QueueLock` for its arguments."""

    _bell = Bell


class ZooKeeperSemaphore(ZooKeeperLock, QueuePermits):
    """Permits for threads and processes; see `QueuePermits` for its arguments."""


class AsyncZooKeeperLock(AsyncWithStatement, QueueLock, BesideTheLoop):
    """`ZooKeeperLock` for asyncio, with the same KazooClient.

    A cancelled `acquire` deletes its node first, or in the background if it had no reply about it yet.
    """

    _bell = TaskBell


class AsyncZooKeeperSemaphore(AsyncZooKeeperLock, QueuePermits):
    """`ZooKeeperSemaphore` for asyncio."""
