"""Locks of ZooKeeper, through kazoo: the first in a name's queue of nodes holds.

There is no lease to choose and nothing to renew: the session is the lease. kazoo keeps it alive by heartbeats;
when they stay away for its time-out (`KazooClient(timeout=…)`, seconds), the server deletes the node. A holder
that was stopped for longer, and goes on, is known by its `token`: give it to the resource that the lock protects.

Never waits in a thread of asyncio's executor, where waiters could leave none for a release.

Limits: the empty folder of a name stays, so names should be few (kazoo makes no container nodes). A forked child
needs a client of its own. Do not call the face of threads from kazoo's callbacks: they would wait for themselves.
"""

import math
import time
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from idempotency.extras import needed

with needed("zookeeper", by="idempotency.locks.zookeeper"):
    from kazoo.client import KazooClient

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.counted import Counted, Desk
from idempotency.locks.engine.nodes import Place, Queue, desk_of, session_ended
from idempotency.locks.engine.steps import Step, Steps, Tasked, Threaded, Wait, operation, perform, perform_async
from idempotency.locks.engine.tasks import TaskBell
from idempotency.locks.state import Owner, State
from idempotency.redis.mailbox import Bell

T = TypeVar("T")

ROOT = "/idempotency/locks"


class QueueLock(Counted):
    """Source of `ZooKeeperLock` and `AsyncZooKeeperLock`: exclusive, in the order of arrival; see `Counted`.

    Args:
        name: any text; the same name is the same lock everywhere below the client's chroot.
        client: a started KazooClient; its session is the lease.
        owner: holder's name, for code that acquires in one thread and releases in another of this process; unique.
            Two threads of one owner that ask at the same moment queue behind each other. None: the thread or task.
        wait_seconds: how long `with` and `acquire` wait: None for ever, 0 not at all. A silent server may take
            `nodes.ANSWER_SECONDS` more.
        raise_on_lost: as of `Lock`.
    """

    _bell: ClassVar[type[Any]]

    def __init__(
        self,
        name: str,
        *,
        client: KazooClient,
        owner: str | None = None,
        wait_seconds: float | None = None,
        raise_on_lost: bool = True,
    ) -> None:
        super().__init__(name, owner=owner, wait_seconds=wait_seconds, raise_on_lost=raise_on_lost)
        self._client = client
        self._folder = f"{ROOT}/lock-{quote(name, safe='')}"
        self._queue = Queue(client, self._folder, self._bell)

    @operation
    def contenders(self) -> Steps[list[str]]:
        """Ask who holds it and who waits, in the order of the queue: a command, and one for each of them."""
        return [name.decode() for name, _ in (yield from self._queue.contenders())[1]]

    def _state(self) -> Steps[State]:
        nodes, first = yield from self._queue.contenders(1)
        held = {hold.node: hold.count for hold in list(self._desk().holds.values())}
        owners = []
        for name, stat in first:
            since = datetime.fromtimestamp(stat.created, UTC)
            owners.append(Owner(name.decode(), stat.czxid, since, math.inf, held.get(nodes[0], 1)))
        return State(tuple(owners), tuple(nodes[1:]))

    def _take(self, wait_seconds: float | None) -> Steps[Place | None]:
        ends_at = math.inf if wait_seconds is None else time.monotonic() + wait_seconds
        place = Place(self._folder, self._holder(), ends_at=ends_at)
        self._waits.add(place)
        try:
            won = yield from self._queue.first(place)
        except GeneratorExit:  # nobody performs steps any more
            self._queue.sweep(place)
            raise
        except BaseException:  # a cancellation too
            yield from self._queue.leave(place)
            raise
        finally:
            self._waits.discard(place)
        if won:
            return place
        yield from self._queue.leave(place)
        return None

    def _cancel(self, wait: Place) -> Steps[None]:
        self._queue.hurry(wait)
        return
        yield  # a step of none

    def _give_back(self, hold: Place) -> Steps[bool]:
        return not self._has_ended(hold) and (yield from self._queue.give_back(hold))

    def _abandon(self, holds: list[Place]) -> None:
        for place in holds:
            self._queue.sweep(place)

    def _has_ended(self, hold: Place) -> bool:
        return session_ended(self._client, hold)

    def _may_be_lost(self, hold: Place) -> bool:
        return not self._client.connected or self._has_ended(hold)

    def _desk(self) -> Desk:
        return desk_of(self._client)

    def _key(self) -> tuple[str, ...]:
        return holder.process(), self._folder, self._holder().name


def _wait(step: Step) -> Any:
    """Perform a step: a wait until a callback of kazoo rings."""
    if not isinstance(step, Wait):
        raise TypeError(f"{step!r} is no step of this protocol")
    return step.bell.wait(step.seconds)


class ZooKeeperLock(WithStatement, QueueLock, Threaded):
    """Lock for threads and processes; see `QueueLock` for its arguments."""

    _bell = Bell

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, _wait)


class AsyncZooKeeperLock(AsyncWithStatement, QueueLock, Tasked):
    """`ZooKeeperLock` for asyncio, with the same KazooClient. A cancelled `acquire` takes its node away first."""

    _bell = TaskBell

    async def run(self, steps: Steps[T]) -> T:
        return await perform_async(steps, _wait)
