"""`RedLock`: one lock over several servers of Redis, held while a majority says so.

It survives the loss of a minority. It has no fencing token, because no server sees every acquisition, so nothing
can refuse the write of a holder that is paused past its lease: for that, use `Lock` with its token, or a
constraint. It has no queue either: a waiter tries again after a random while.

Source: redis.io, "Distributed Locks with Redis" (read 2026-11): majority, validity, release on all servers.
"""

import random
import time
from collections.abc import Collection, Sequence
from functools import partial
from itertools import count
from typing import Any, Unpack

from idempotency.arguments import leasing
from idempotency.locks.engine.contexts import AsyncWithStatement, Common, WithStatement
from idempotency.locks.engine.places import HOLD_SECONDS_MAX
from idempotency.locks.engine.steps import DEFAULT, On, Pause, Steps, deadline_of, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.engine.waits import UNAVAILABLE_SECONDS
from idempotency.locks.errors import LockLost, LockUnavailable, NotHeld, not_held
from idempotency.locks.mutex import AsyncLock, Lock, Mutex, Several

DRIFT_PART, DRIFT_SECONDS = 0.01, 0.002  # difference of clocks over a lease
TRY_AGAIN_SECONDS = (0.02, 0.2)


def _certain(lease_seconds: float | None) -> float | None:
    """Return a lease that outlasts clock drift; a shorter one is never surely held."""
    if lease_seconds is DEFAULT or (lease := leasing(lease_seconds)) is None:
        return lease_seconds
    if lease * (1 - DRIFT_PART) <= DRIFT_SECONDS:
        raise ValueError(
            f"lease_seconds must be above {DRIFT_SECONDS}, which clocks may drift, not {lease_seconds!r}"
        )
    return lease_seconds


class Majority(Several):
    """Source of both faces. Every server is asked; the holder is the one of a majority.

    Args:
        name, prefix: as of `Lock`.
        clients: one client for each server; an odd number, at least three. Give them short time-outs: a server
            that hangs costs an acquire that long, at most two seconds.
        lease_seconds, hold_seconds_max, settings: as of `Lock`. Listeners hear of the end of a majority, with
            the token of the server that was the last of it.
    """

    _lock: type[Any]

    def __init__(
        self,
        name: str,
        *,
        clients: Sequence[Any],
        prefix: str | None = None,
        lease_seconds: float | None = None,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        **settings: Unpack[Common],
    ) -> None:
        servers = len(set(map(id, clients))) if isinstance(clients, Collection) else 0
        if servers < 3 or servers % 2 == 0 or servers < len(clients):
            raise ValueError(f"a RedLock needs an odd number of servers, at least three, each once, not {clients}")
        super().__init__(name, **settings)
        self.majority = self.quorum = servers // 2 + 1
        each = {"prefix": prefix, "lease_seconds": _certain(lease_seconds), "hold_seconds_max": hold_seconds_max}
        self.locks = [self._lock(name, client=client, release_seconds=0.0, **each) for client in clients]
        self._join()

    @operation
    def acquire(
        self, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take it on a majority of servers. False when the time was over: no server holds it.

        Raises:
            LockLost: the caller held it already and a majority lost it since, not by a lease of its own: release
                it first.
            LockUnavailable: a majority did not reply, until the time was over or for UNAVAILABLE_SECONDS.
        """
        deadline, lease_seconds = deadline_of(self._limit(wait_seconds)), _certain(lease_seconds)
        answered_at, cancels = time.monotonic(), self._cancels
        while True:
            if self.lost and not all(hold.lapsed for hold in self._holds() if hold.lost):
                raise self._lost()
            away: list[Exception] = []
            if (yield from self._all_or_nothing(partial(self._round, lease_seconds, away))):
                return True
            now = time.monotonic()
            deadline = deadline if self._cancels == cancels else 0.0
            if len(away) < self.majority:
                answered_at = now
            elif now >= deadline or now - answered_at > UNAVAILABLE_SECONDS:
                raise LockUnavailable(f"{len(away)} of {len(self.locks)} servers did not answer.")
            if now >= deadline:
                return False
            pause = random.uniform(*TRY_AGAIN_SECONDS)  # noqa: S311  so that two do not tie again
            yield Pause(min(pause, deadline - now))

    def _round(self, lease_seconds: float | None, away: list[Exception], taken: list[Any]) -> Steps[bool]:
        """Try once on every server; return whether a majority is held."""
        for node in self.locks:
            try:
                ask = Mutex.acquire.steps(node, wait_seconds=0, lease_seconds=lease_seconds)
                if (yield On(node, ask)):
                    taken.append(node)
            except LockUnavailable as error:
                away.append(error)
            except LockLost:  # this server forgot the caller's earlier hold; the others decide
                continue
        if len(taken) < self.majority or not self.held:
            return False
        self._left[self._holder().name] = count(len(taken) - 1, -1)
        return True

    @operation
    def release(self) -> Steps[None]:
        """Release on every server. Raises as `Lock`; `LockLost` where a majority had ended."""
        held = [node for node in self.locks if node.token is not None]
        if not held:
            raise not_held(self.name)
        lost = self.lost
        errors = yield from self._give_back(held)
        forgot = sum(isinstance(error, NotHeld) for error in errors)  # one that is away ends it by its lease
        if lost or len(held) - forgot < self.majority:
            raise self._lost()

    def _lost(self) -> LockLost:
        return LockLost(f"{self.name!r} was lost while it was held: a majority of its leases ended.")

    def _entering(self) -> Steps[bool]:
        if self.lost:
            raise self._lost()
        return (yield from Majority.acquire.steps(self))

    @property
    def valid_seconds(self) -> float:
        """Time that it is certainly held without a renewal: lease − elapsed − drift; 0 if not held."""
        holds = [hold for hold in self._holds() if not hold.gone]
        ends = [hold.ends_at - hold.lease_seconds * DRIFT_PART - DRIFT_SECONDS for hold in holds]
        if len(ends) < self.majority:
            return 0.0
        return max(0.0, sorted(ends, reverse=True)[self.majority - 1] - time.monotonic())

    @property
    def held(self) -> bool:
        """True while the caller holds it on a majority, as far as this process knows."""
        return self.valid_seconds > 0

    @property
    def lost(self) -> bool:
        """True if the caller held it and a majority has ended it."""
        return any(node.token is not None for node in self.locks) and not self.held


class RedLock(OnThreads, WithStatement, Majority):
    """Lock over several servers, for threads; see `Majority` for its arguments."""

    _lock = Lock


class AsyncRedLock(OnTasks, AsyncWithStatement, Majority):
    """`RedLock` for asyncio."""

    _lock = AsyncLock
