"""`Lock` and `FairLock`: one holder at a time, reentrant, with a fencing token."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from idempotency.locks.engine.contexts import AsyncWithStatement, Entered, Owned, WithStatement
from idempotency.locks.engine.holds import Hold
from idempotency.locks.engine.steps import DEFAULT, Finish, On, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.errors import LockError, LockUnavailable
from idempotency.locks.state import AskedByHolder, Held, Owner, State

T = TypeVar("T")


class Mutex(Held, Owned):
    """Source of both faces of every lock; see `Owned` for its arguments."""

    _kind = "lock"
    _capacity = 1
    _fair = False
    _share = (0, 1)

    @operation
    def acquire(
        self, *, wait_seconds: float | None = DEFAULT, lease_seconds: float | None = DEFAULT
    ) -> Steps[bool]:
        """Take the lock, again if the caller holds it already. False when the time was over.

        Args:
            wait_seconds, lease_seconds: instead of the constructor's.

        Raises:
            LockLost: the caller held it already and lost it since, not by a lease of its own: release it first.
        """
        return (yield from self._take_places(self._holder(), self._share, wait_seconds, lease_seconds)) is not None

    def _entering(self) -> Steps[bool]:
        return (yield from self._take_places(self._holder(), self._share, within=True)) is not None

    @operation
    def release(self) -> Steps[None]:
        """Give the lock back, or one acquire of several.

        Raises:
            NotHeld: the caller does not hold it; nothing changed.
            LockLost: the caller held it, but its lease ended before.
            LockUnavailable: Redis did not reply; the lease ends it.
        """
        yield Finish(self._give_places(self._keys, self._holder(), self._share))

    def _holds(self) -> list[Hold]:
        return [hold] if (hold := self._hold()) else []

    def _hold(self) -> Hold | None:
        hold = self.hub().holds.get(self._key, self._holder().name)
        mine = hold is not None and (hold.exclusive if self._share[1] else hold.shared)
        return hold if mine else None


def released(locks: Sequence[Any]) -> Steps[list[LockError]]:
    """Release several locks, the last one first, whatever happens to one; return their errors."""
    errors = []
    for lock in reversed(locks):
        try:
            yield On(lock, Mutex.release.steps(lock))
        except LockError as error:
            errors.append(error)
    return errors


class Several(AskedByHolder, Entered):
    """Base of several locks that are held where `quorum` of them are."""

    locks: Sequence[Any]
    quorum: int
    _cancels = 0
    _left: "dict[str, count[int]]"  # by owner, counts down how many are left: `next` is one step for all threads

    @operation
    def extend(self, seconds: float, *, add: bool = False) -> Steps[None]:
        """Extend each, as `Lock` does; raise where a quorum is not held any more."""
        yield from self._of_each(partial(Mutex.extend.steps, add=add), seconds)

    @operation
    def force_release(self) -> Steps[bool]:
        """Take each from its holder, as `Lock` does. Return whether anyone held one."""
        return any((yield from self._of_each(Mutex.force_release.steps)))

    @operation
    def cancel(self) -> Steps[None]:
        """End every wait through this object, in whatever thread: as if its time were over."""
        self._cancels += 1
        yield from self._of_each(Mutex.cancel.steps)

    def _all_or_nothing(self, steps: Callable[[list[Any]], Steps[bool]]) -> Steps[bool]:
        """Perform steps that append each lock they take. Unless they return True, give those back."""
        taken: list[Any] = []
        try:
            won = yield from steps(taken)
        except GeneratorExit:
            raise
        except BaseException:
            yield Finish(released(taken))
            raise
        if not won:
            yield Finish(released(taken))
        return won

    def _join(self) -> None:
        """Give each lock the owner of all, and have it call the listeners where it ends all."""
        self.client, self._left = self.locks[0].client, {}
        for lock in self.locks:
            lock._owner, lock._waits = self._owner or lock._owner, set()
            if self._listeners:
                lock._notify = partial(self._one_ended, lock._notify)

    def _one_ended(self, own: Callable[..., None] | None, end: str, hold: Hold) -> None:
        """Notify the lock's own listeners, and where it was the last of a quorum those of all."""
        if own is not None:
            own(end, hold)
        left = self._left.get(hold.owner)
        if left is not None and next(left) == self.quorum - 1:
            self._listeners(end, hold)

    def _give_back(self, locks: Sequence[Any]) -> Steps[list[LockError]]:
        for hold in self._holds():
            if hold.lost:  # first: the whole is lost, whatever is released now
                hold.over()
        errors: list[LockError] = yield Finish(released(locks))
        if not self._holds():
            self._left.pop(self._holder().name, None)
        return errors

    def _holder(self) -> Any:
        return self.locks[0]._holder()

    def _holds(self) -> list[Hold]:
        return [hold for lock in self.locks if (hold := lock._hold())]

    def _state(self) -> Steps[State]:
        states = yield from self._of_each(Mutex.state.steps)
        found = defaultdict(list)
        for owner in (owner for state in states for owner in state.owners):
            found[owner.name].append(owner)
        owners = [_agreed(each, self.quorum - 1) for each in found.values() if len(each) >= self.quorum]
        return State(tuple(owners), max((state.waiters for state in states), key=len))

    def _of_each(self, steps: Callable[..., Steps[T]], *arguments: Any) -> Steps[list[T]]:
        """Perform steps on each lock; return their results, or raise where a quorum has none."""
        results, errors = [], []
        for lock in self.locks:
            try:
                results.append((yield On(lock, steps(lock, *arguments))))
            except LockError as error:
                errors.append(error)
        if len(results) < self.quorum:
            refused = [error for error in errors if not isinstance(error, LockUnavailable)]
            if len(refused) > len(self.locks) - self.quorum:  # also with those that are away
                raise refused[0]
            raise LockUnavailable(f"{self.name!r}: too few servers replied.") from errors[0]
        return results


def _agreed(owners: list[Owner], last: int) -> Owner:
    """Return one owner of several locks: as the one after `last` better ones says."""
    since, ends, holds = zip(*((each.since, each.remaining_seconds, each.holds) for each in owners), strict=True)
    most = sorted(ends, reverse=True)[last], sorted(holds, reverse=True)[last]
    return Owner(owners[0].name, None, sorted(since)[last], *most)


class Lock(OnThreads, WithStatement, Mutex):
    """Lock for threads and processes; see `Owned` for its arguments.

    A release hands it to the longest waiter. A newcomer that finds it free in between takes it.
    """


class AsyncLock(OnTasks, AsyncWithStatement, Mutex):
    """`Lock` for asyncio."""


class FairLock(OnThreads, WithStatement, Mutex):
    """Lock in the order of arrival, over all processes. A try does not pass the queue."""

    _fair = True


class AsyncFairLock(OnTasks, AsyncWithStatement, Mutex):
    """`FairLock` for asyncio."""

    _fair = True
