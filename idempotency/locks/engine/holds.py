"""Holds of this process. Pure bookkeeping: no socket, no thread of its own.

The clock is `time.monotonic`. A server's time is converted by a pair of both, taken so that our end of a lease is
never later than the server's.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from idempotency.locks.engine.holder import Holder
from idempotency.observability.background import NEVER

MICROSECONDS = 1_000_000
RENEW_AFTER = 1 / 3  # of a lease
CONFIRM_SECONDS = 0.05  # shorter holds are over before they need to be confirmed
LOSS_SECONDS = 3600.0  # for which a holder that lives can still learn that it lost
SWEEP_AT = 100  # holds or owners, beyond twice as many as were left when they were looked through last


@dataclass(slots=True, eq=False)
class Hold:
    """Places that a holder has now. Times are of our clock."""

    key: str  # of the resource's holders, as the scripts name it
    owner: str  # the field there
    holder: Holder
    lease_seconds: float  # length of a renewal
    token: int = 0  # grows with every acquisition of the resource; 0 until there is one
    ends_at: float = 0.0  # after it the server may have given it to another
    renew_until: float = 0.0
    shared: int = 0  # places that this process has taken under it
    exclusive: int = 0  # times that it has taken all of them
    due_at: float | None = None  # of the next renewal; None for one that ends by its own lease
    renews: bool = True
    anyones: bool = False  # another process may prolong it: its end is asked for
    confirmed: bool = True  # False while only granted: it has a short lease until its first renewal
    doubted: bool = False  # its end may have been missed: it is asked for at once
    gone: bool = False  # the server said that it is not held any more
    notify: "Callable[[str, Hold], None] | None" = None  # called with the end of it and itself

    @property
    def lost(self) -> bool:
        """True once another holder is possible."""
        return self.gone or time.monotonic() >= self.ends_at

    @property
    def lapsed(self) -> bool:
        """True if it ended as its holder meant it to: by the lease that was asked for."""
        return self.lost and not (self.renews or self.gone)

    def ends_by_itself(self, now: float) -> bool:
        """Return whether the server knows it and it is renewed no more."""
        return self.confirmed and (not self.renews or now >= self.renew_until)

    def prolonged(self, ends_at: float, *, at: float) -> None:
        """Note that the server has prolonged it, asked at `at`."""
        self.ends_at = max(self.ends_at, ends_at)
        self.confirmed, self.doubted = True, False
        self.due_at = self.next_look(at)

    def next_look(self, at: float) -> float | None:
        """Return when the watchdog looks at it again, if the last time was `at`."""
        if self.renews:
            return at + self.lease_seconds * RENEW_AFTER
        return self.ends_at if self.notify else None

    def over(self, *, released: bool = False) -> None:
        """Renew it no more, and notify of its end, once."""
        notify, self.notify, self.due_at = self.notify, None, None  # first: another thread may notice it too
        if notify is not None:
            notify("released" if released else "expired" if self.lapsed else "lost", self)


class Holds:
    """Holds of a process at one server, by (key, owner). Thread-safe."""

    def __init__(self, stir: Callable[[], None]) -> None:
        self._lock = threading.RLock()  # a finalizer may run in any line, and end an acquire
        self._holds: dict[tuple[str, str], Hold] = {}
        self._stir = stir  # called when a renewal becomes due earlier than anyone waits for
        self._next = NEVER
        self._granted = False
        self._sweep_at = SWEEP_AT

    def add(self, hold: Hold) -> None:
        with self._lock:
            if len(self._holds) >= self._sweep_at:  # those with leases of their own: no watchdog comes by
                self.forget_ended()
                self._sweep_at = 2 * len(self._holds) + SWEEP_AT
            self._holds[hold.key, hold.owner] = hold
            due_at = hold.due_at  # read once: another thread may end the renewals at any time
            self._granted = self._granted or not hold.confirmed
            if early := due_at is not None and due_at < self._next:
                self._next = due_at
        if not early:
            return
        try:
            self._stir()
        except BaseException:  # no thread can be started: without renewals it must not be held
            self.remove(hold)
            self._next = NEVER
            raise

    def get(self, key: str, owner: str) -> Hold | None:
        return self._holds.get((key, owner))

    def ended(self, token: int, place: str) -> None:
        """Note that another took the hold at `place` by force, or released it: a negative `token`."""
        with self._lock:
            holds = [each for at, each in self._holds.items() if " ".join(at) == place]
        for hold in (hold for hold in holds if hold.token == abs(token)):
            hold.gone = True
            hold.over(released=token < 0)

    def doubt(self) -> None:
        """Have every hold asked for at once: one may have been ended by force unheard."""
        with self._lock:
            doubted = [hold for hold in self._holds.values() if hold.confirmed and not hold.lost]
            for hold in doubted:
                hold.doubted, hold.due_at = True, 0.0
        if doubted:
            with contextlib.suppress(RuntimeError):  # no thread can be started: the release learns of it
                self._stir()

    def any_lasts(self) -> bool:
        """Return whether there is a hold that has not ended."""
        with self._lock:
            return any(not hold.lost for hold in self._holds.values())

    def remove(self, hold: Hold) -> None:
        with self._lock:
            if self._holds.get((hold.key, hold.owner)) is hold:
                del self._holds[hold.key, hold.owner]

    def due(self, *, within_seconds: float) -> list[Hold]:
        """Return the holds to renew now; a little early is better than one by one.

        A hold whose holder is gone, or whose time is over, is renewed no more: it ends by its lease.
        """
        now = time.monotonic()
        found, over = [], []
        with self._lock:
            for hold in self._holds.values():
                due_at = hold.due_at
                if due_at is None:
                    continue
                if hold.lost and not hold.anyones:
                    over.append(hold)
                elif not hold.holder.alive() or (hold.ends_by_itself(now) and not (hold.doubted or hold.anyones)):
                    hold.due_at = hold.ends_at if hold.notify else None
                elif due_at <= now + min(within_seconds, hold.lease_seconds / 10):
                    found.append(hold)
        for hold in over:
            hold.over()
        return found

    def next_due(self) -> float:
        """Return when to look for the next renewal, infinite if never. `stir` reports earlier ones.

        After a grant there is one more look: the next hold is mostly granted before it and due after it, so that
        the watchdog does not wake in the middle of a hand-over.
        """
        with self._lock:
            every = [hold.due_at for hold in self._holds.values()]
            self._next = min((due_at for due_at in every if due_at is not None), default=NEVER)
            if self._granted:
                self._next = min(self._next, time.monotonic() + CONFIRM_SECONDS)
                self._granted = False
            return self._next

    def unwatched(self) -> None:
        """Let the next hold that is added stir, whenever it is due: nobody looks any more."""
        self._next = NEVER

    def forget_ended(self) -> None:
        """Forget holds that ended by themselves, have no listener to notify, and nobody asks for."""
        old = time.monotonic() - LOSS_SECONDS
        with self._lock:
            for at, hold in list(self._holds.items()):
                if hold.lost and not hold.notify and (hold.ends_at < old or not hold.holder.alive()):
                    del self._holds[at]


class Slots:
    """Holds by owner, several of one resource: each acquire of a semaphore. Thread-safe.

    Each acquire is a holder of its own on the server. Its name there is used again, but only once the server has
    said that nothing is held under it: else an acquire would count as the same holder's second one, for which
    nothing needs to be free.
    """

    def __init__(self, holds: Holds, new_name: Callable[[], str]) -> None:
        self._holds = holds
        self._new_name = new_name  # makes one that nobody ever had
        self._lock = threading.RLock()
        self._names: list[str] = []
        self._taken: dict[tuple[str, str], list[Hold]] = {}
        self._sweep_at = SWEEP_AT

    def name(self) -> str:
        """Return a name under which nothing is held, to one caller only."""
        try:
            return self._names.pop()
        except IndexError:
            return self._new_name()

    def free(self, name: str) -> None:
        """Note that the server holds nothing under `name`."""
        self._names.append(name)

    def of(self, key: str, owner: str) -> list[Hold]:
        """Return the holds of `owner` at the resource of `key`, in the order of the acquires."""
        return [hold for hold in self._taken.get((key, owner), ()) if self._holds.get(key, hold.owner) is hold]

    def add(self, owner: str, hold: Hold) -> None:
        with self._lock:
            self._taken[hold.key, owner] = [*self.of(hold.key, owner), hold]
            if len(self._taken) >= self._sweep_at:
                self._holds.forget_ended()
                self._taken = {at: left for at in self._taken if (left := self.of(*at))}
                self._sweep_at = 2 * len(self._taken) + SWEEP_AT
