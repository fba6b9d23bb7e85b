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
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from kazoo.client import KazooClient

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import DEFAULT, AsyncWithStatement, Entered, WithStatement
from idempotency.locks.engine.nodes import Place, Queue, desk_of, session_ended
from idempotency.locks.engine.steps import Step, Steps, Tasked, Threaded, Wait, operation, perform, perform_async
from idempotency.locks.engine.tasks import TaskBell
from idempotency.locks.errors import LockLost, NotHeld
from idempotency.redis.mailbox import Bell

T = TypeVar("T")

ROOT = "/idempotency/locks"


class QueueLock(Entered):
    """Source of `ZooKeeperLock` and `AsyncZooKeeperLock`: exclusive, in the order of arrival, reentrant.

    A thread or task that ends without a release leaves it locked until the session ends, or anything is locked
    here with the same client.

    Args:
        name: any text; the same name is the same lock everywhere below the client's chroot.
        client: a started KazooClient; its session is the lease.
        owner: holder's name, for code that acquires in one thread and releases in another of this process; unique.
            Two threads of one owner that ask at the same moment queue behind each other. None: the thread or task.
        wait_seconds: how long `with` and `acquire` wait: None for ever, 0 not at all.
    """

    _bell: ClassVar[type[Any]]

    def __init__(
        self, name: str, *, client: KazooClient, owner: str | None = None, wait_seconds: float | None = None
    ) -> None:
        self.name = name
        self._client = client
        self._owner = None if owner is None else holder.named(owner)
        self._wait_seconds = wait_seconds
        self._folder = f"{ROOT}/lock-{quote(name, safe='')}"
        self._queue = Queue(client, self._folder, self._bell)

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take it, once more if the caller holds it already.

        Args:
            wait_seconds: instead of the constructor's. A silent server may take `ANSWER_SECONDS` more.

        Returns:
            True if it is held now. If not, and on any error, no node is left.

        Raises:
            LockLost: the caller held it already, and its session ended since; release it first.
            LockUnavailable: no server for `ANSWER_SECONDS`, or the client is stopped; the lock is not held.
            kazoo.exceptions.KazooException: the server refuses, as without rights to the nodes.
        """
        self._drop_those_of_the_dead()
        desk, key = desk_of(self._client), self._key()
        with desk.guard:
            if hold := desk.holds.get(key):
                if session_ended(self._client, hold):
                    raise LockLost(f"{self.name!r}: its session ended.")
                hold.count += 1
                return True
        limit = self._limit(wait_seconds)
        place = Place(self._folder, self._owner or holder.current())
        try:
            won = yield from self._queue.first(place, math.inf if limit is None else time.monotonic() + limit)
        except GeneratorExit:  # nobody performs steps any more
            self._queue.sweep(place)
            raise
        except BaseException:  # a cancellation too
            yield from self._queue.leave(place)
            raise
        if won:
            with desk.guard:
                desk.holds[key] = place
        else:
            yield from self._queue.leave(place)
        return won

    @operation
    def release(self) -> Steps[None]:
        """Give it back, or one acquire of several.

        Raises:
            NotHeld: the caller does not hold it; nothing changed.
            LockLost: the caller held it, but its session ended or its node went before.
            LockUnavailable: the server did not reply; the node goes when it does again, or with the session.
        """
        desk, key = desk_of(self._client), self._key()
        with desk.guard:
            hold = desk.holds.get(key)
            if hold is None:
                raise NotHeld(f"{self.name!r} is not held by this thread, task or owner.")
            hold.count -= 1
            last = hold.count == 0
            if last:
                del desk.holds[key]
        if session_ended(self._client, hold):
            raise LockLost(f"{self.name!r}: its session ended.")
        if last:
            yield from self._queue.give_back(hold)

    @property
    def held(self) -> bool:
        """True while the caller holds it, as far as this process knows without asking."""
        hold = self._hold()
        return hold is not None and not self._lost(hold)

    @property
    def lost(self) -> bool:
        """True if another may hold it: the caller's session ended, or is not connected right now.

        The second may pass: the server has not given it away if the connection comes back in time.
        """
        hold = self._hold()
        return hold is not None and self._lost(hold)

    @property
    def token(self) -> int | None:
        """Fencing token of the caller's hold: higher than every earlier holder's. None if not held.

        It is the transaction that made the caller's node (its czxid). These numbers only grow, and the queue is in
        the order of making. They start again only if the ensemble's data are lost.
        """
        hold = self._hold()
        return None if hold is None else hold.token

    def _lost(self, hold: Place) -> bool:
        return not self._client.connected or session_ended(self._client, hold)

    def _key(self) -> tuple[str, str]:
        return self._folder, (self._owner or holder.current()).name

    def _hold(self) -> Place | None:
        return desk_of(self._client).holds.get(self._key())

    def _drop_those_of_the_dead(self) -> None:
        """Delete the nodes of threads and tasks that are gone."""
        desk = desk_of(self._client)
        with desk.guard:
            gone = [key for key, hold in desk.holds.items() if not hold.holder.alive()]
            places = [desk.holds.pop(key) for key in gone]
        for place in places:
            self._queue.sweep(place)


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
