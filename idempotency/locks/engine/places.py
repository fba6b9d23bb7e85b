"""Places: the one protocol under locks, read/write locks and semaphores.

A resource has a capacity. A holder has some places of it under a lease, or waits in a queue on the server. A
release hands places to the queue's head in the same script and notifies its process on its channel, so that a
contended lock changes hands in two commands and wakes nobody in vain. Such a grant has a short lease until the
winner's process confirms it, which the watchdog does for a hold that lasts; a waiter that dies costs its
successors a moment, not a lease.
"""

import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

from django.utils.encoding import force_str

from idempotency.arguments import leasing, whole_number
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.holds import CONFIRM_SECONDS, MICROSECONDS, Hold
from idempotency.locks.engine.hub import Hub, Resource, script, tagged
from idempotency.locks.engine.steps import DEFAULT, Ask, Finish, Listen, Steps, deadline_of, insist, operation
from idempotency.locks.engine.waits import Question, Waited
from idempotency.locks.errors import LockLost, LockUnavailable, NotHeld, UpgradeRefused, not_held
from idempotency.locks.state import Asked, Owner, State
from idempotency.redis.mailbox import READY_SECONDS

LEASE_SECONDS = 30.0
HOLD_SECONDS_MAX = 3600.0  # a watchdog that renews for ever hides a holder that hangs
CLAIM_SECONDS = 1.0  # lease of a grant until the waiter's process has confirmed
PATIENCE_SECONDS = 30.0  # a waiter that has not asked again for so long is taken for dead
RELEASE_SECONDS = 2.0  # for which a release bears a server that does not reply; then the lease ends it
FRONT = 8  # of the queue; these look when the holder's lease ends, the others more rarely

Share = tuple[int, int]  # so many shared places, or all where the second is 1; 0, 0: those that are free now

_TERMS = struct.Struct(">8d")  # as places.lua reads them
_ACQUIRE = script("places", "acquire")
_RELEASE = script("places", "release")
_LOOK = script("places", "look")
_FORCE = script("places", "force")


class Placed(Waited, Asked, Resource):
    """Base of what has places at a server; see `Resource` for its arguments."""

    _capacity: int
    _fair = True  # nobody passes the queue, and a waiter keeps its place while its process reconnects
    _share: Share = (1, 0)  # what a question is about
    _notify: Callable[[str, Hold], None] | None = None  # called with the end of a hold and itself
    _lease_seconds: float | None = None
    _hold_seconds_max = HOLD_SECONDS_MAX
    _release_seconds = RELEASE_SECONDS

    @operation
    def force_release(self, *, token: int | None = None) -> Steps[bool]:
        """Take it from its holder, and hand it to the next waiter. Return whether anyone held it.

        A message reaches the holder: its `lost` is true from then on, and its `release` raises `LockLost`.
        If the message is lost, `lost` is true after the next renewal.

        Args:
            token: of the one hold to end, or acquire of permits; None ends every reader's, the writer's, or every
                permit.
        """
        hub, ended = self.hub(), 0 if token is None else whole_number("token", token)
        ask = Ask(_FORCE, self._keys, [self._terms(hub, self._share), hub.new_request(), ended])
        return bool((yield from self._insist(ask)))

    def _state(self) -> Steps[State]:
        """Read who has all places and who waits for them, or else who has and wants shared ones."""
        _, exclusive = self._share
        now, holders, waiters = yield Ask(_LOOK, self._keys, [self._terms(self.hub(), self._share)])
        owners = [
            # a token is the server's time in microseconds
            Owner(force_str(name), token, datetime.fromtimestamp(token / 1e6, UTC), (ends - now) / 1e6, count)
            for name, *counts, ends, token in sorted(holders, key=itemgetter(-1))
            if (count := counts[exclusive])
        ]
        return State(tuple(owners), tuple(force_str(name) for name, alone in waiters if alone == exclusive))

    @property
    def _keys(self) -> list[str]:
        """Keys of its holders, its queue and its waiters, for the current tenant."""
        key = tagged(self._kind, self.name, self._prefix)
        return [key, f"{key}:queue", f"{key}:waiters"]

    def _take_places(
        self,
        holder: Holder,
        share: Share,
        wait_seconds: float | None = DEFAULT,
        lease_seconds: float | None = DEFAULT,
        *,
        watched: bool = True,
        within: bool = False,
    ) -> Steps[Hold | None]:
        """Take places; return the hold, or None when the time was over.

        Args:
            watched: False confirms at once and renews nothing, for places that another may give back.
            within: for a `with`, which may stand inside another that has to learn of its loss.

        Raises:
            UpgradeRefused: the holder has shared places and wants all.
            LockLost: the holder had some, lost them, and has not released them yet. Not where a lease that it
                asked for ended them and this is no `with`: then it may take them again.
        """
        lease_seconds = self._lease_seconds if lease_seconds is DEFAULT else leasing(lease_seconds)
        hub, deadline = self.hub(), deadline_of(self._limit(wait_seconds))
        request = hub.new_request()
        asking = Asking(self, holder, share, lease_seconds, watched, hub=hub, request=request, deadline=deadline)
        before = hub.holds.get(asking.keys[0], holder.name)
        if before is not None and before.lost:
            if within or not before.lapsed:
                raise self._lost()
            hub.holds.remove(before)
            before.over()
        try:
            if self._notify and deadline == 0.0:
                yield Listen(0.0)
            return (yield from asking.until(self._waits))  # type: ignore[no-any-return]
        except (UpgradeRefused, GeneratorExit):
            raise
        except BaseException:
            yield Finish(self._undo(holder, request, share, before=before))
            raise

    def _give_places(self, keys: list[str], holder: Holder, share: Share, token: int | None = None) -> Steps[None]:
        """Give back places held under `token`, to the end; raise as `Mutex.release`."""
        hub, (shared, exclusive) = self.hub(), share
        hold = hub.holds.get(keys[0], holder.name)
        if token is None:  # that of the hold here; 0, for any, where another loop or process acquired it
            token = 0 if hold is None else hold.token
        if hold is not None and (hold.shared, hold.exclusive) == share:
            hub.holds.remove(hold)  # first: a renewal that comes after the release is no loss
        ask = self._release_command(hub, keys, holder, share, token=token)
        was_held, *places_left = yield from self._insist(ask, [hold] if hold else ())
        if was_held:
            if hold is not None:
                hold.shared -= shared
                hold.exclusive -= exclusive
                # places left there and not here are of a release that went unanswered: their lease ends them
                if places_left == [0] or hold.shared + hold.exclusive <= 0:
                    hub.holds.remove(hold)
                    hold.over(released=True)
            return
        if hold is None or (hold.shared < shared or hold.exclusive < exclusive):
            raise not_held(self.name)
        hub.holds.remove(hold)
        hold.over()
        raise self._lost()

    def _insist(self, ask: Ask, holds: Sequence[Hold] = ()) -> Steps[Any]:
        """Send a command until it is answered, and return the reply. It may release `holds`."""
        try:
            return (yield from insist(ask, seconds=self._release_seconds))
        except BaseException:  # an interrupt too: what may be given back must not be renewed
            for hold in holds:
                self.hub().holds.remove(hold)
            raise

    def _undo(self, holder: Holder, request: str, share: Share, *, before: Hold | None = None) -> Steps[None]:
        """Undo `request`, whatever became of it: no wait and no hold, but one from `before`."""
        hub = self.hub()
        ask = self._release_command(hub, self._keys, holder, share, undone=request)
        ask.seconds = READY_SECONDS
        try:
            reply = yield ask
        except LockUnavailable:
            return  # its lease or its patience ends it
        hold = hub.holds.get(ask.keys[0], holder.name)
        if reply == [1, 0] and hold is not None and hold is not before:
            hub.holds.remove(hold)

    def _release_command(
        self, hub: Hub, keys: list[str], holder: Holder, share: Share, *, undone: str = "", token: int = 0
    ) -> Ask:
        terms = self._terms(hub, share) + holder.suffix
        return Ask(_RELEASE, keys, [terms, hub.new_request(), holder.name, token, undone, hub.channel])

    def _terms(self, hub: Hub, share: Share, lease_seconds: float = LEASE_SECONDS) -> bytes:
        """Build the arguments of an acquire or a release for the scripts."""
        return _packed(*share, self._capacity, lease_seconds, CLAIM_SECONDS, self._fair, hub.counted)

    def _lost(self) -> NotHeld:
        return LockLost(f"{self.name!r} was lost while it was held: its lease ended, or the server forgot it.")


@dataclass(slots=True, eq=False)
class Asking(Question):
    """Acquire that is sent as often as it needs."""

    resource: Placed
    holder: Holder
    share: Share
    lease_seconds: float | None
    watched: bool
    keys: list[str] = field(init=False)
    _arguments: list[Any] = field(init=False)
    _new: Hold = field(init=False)

    def __post_init__(self) -> None:
        lease_seconds = LEASE_SECONDS if self.lease_seconds is None else self.lease_seconds
        terms = self.resource._terms(self.hub, self.share, lease_seconds) + self.holder.suffix
        self.keys = self.resource._keys
        self._arguments = [terms, self.request, self.holder.name, self.hub.channel]
        # made before it is granted, when somebody waits behind
        self._new = Hold(
            key=self.keys[0],
            owner=self.holder.name,
            holder=self.holder,
            lease_seconds=lease_seconds,
            renews=self.lease_seconds is None,
            anyones=not self.watched,
            notify=self.resource._notify,
        )

    def ask(self, *, stay: bool, again: bool, seconds: float | None = None) -> Ask:
        arguments = [*self._arguments, "1" if stay else "0", "1" if again else "0"]
        return Ask(_ACQUIRE, self.keys, arguments, seconds=seconds)

    def good(self, answer: list[int], sent_at: float) -> Hold | None:
        if answer[0] == 1:
            _, token, now, end, *drained = answer
            self.share = (drained[0], 0) if drained else self.share
            return self._hold(token, sent_at + (end - now) / MICROSECONDS, confirmed=True, sent_at=sent_at)
        if answer[0] == -2:
            raise LockUnavailable(f"{self.resource.name!r}: its holder has sent a later request meanwhile.")
        if answer[0] == -1:
            raise UpgradeRefused(f"{self.resource.name!r}: release the read lock before you write.")
        return None

    def granted(self, answer: list[int], sent_at: float) -> Hold | None:
        """Return the hold that a message granted, if there is time to confirm it."""
        message = self.hub.mail.received(self.request)
        if not isinstance(message, tuple):
            return None
        (token, ends), now = message, answer[-1]
        ends_at, woken_at = sent_at + (ends - now) / MICROSECONDS, time.monotonic()
        if ends_at - woken_at < CLAIM_SECONDS / 2 or not self.watched:
            return None
        return self._hold(token, ends_at, confirmed=False, sent_at=woken_at)

    def look_again_seconds(self, answer: list[int]) -> float:
        _, position, first_end, now = answer
        return _look_again_seconds(position, (first_end - now) / MICROSECONDS)

    def _hold(self, token: int, ends_at: float, *, confirmed: bool, sent_at: float) -> Hold:
        hold = self.hub.holds.get(self._new.key, self._new.owner)
        if hold is not None and hold.token != token and not hold.lapsed:
            hold.gone = True  # it ended meanwhile; its holder must learn that, and release it first
            raise self.resource._lost()
        if hold is None or hold.token != token:
            hold = self._new
            hold.token, hold.ends_at, hold.confirmed = token, ends_at, confirmed
            hold.renew_until = sent_at + self.resource._hold_seconds_max
            hold.due_at = self._new.next_look(sent_at) if confirmed else sent_at + CONFIRM_SECONDS
            if self.watched:
                self.hub.holds.add(hold)
        elif self._new.renews and not hold.renews:  # from now on the watchdog has it
            hold.renews, hold.lease_seconds = True, self._new.lease_seconds
            hold.ends_at = max(hold.ends_at, ends_at)  # first: the watchdog would not renew one that is over
            hold.due_at = self._new.next_look(sent_at)
            self.hub.holds.add(hold)
        hold.ends_at = max(hold.ends_at, ends_at)
        hold.shared += self.share[0]
        hold.exclusive += self.share[1]
        return hold


@lru_cache(maxsize=1000)
def _packed(shared: int, exclusive: int, capacity: int, lease: float, claim: float, *flags: bool) -> bytes:
    """Pack terms for the scripts, with `lease` and `claim` in seconds. Cached."""
    times = (seconds * MICROSECONDS for seconds in (lease, min(claim, lease), PATIENCE_SECONDS))
    return _TERMS.pack(shared, exclusive, capacity, *times, *flags)


def _look_again_seconds(position: int, left_seconds: float) -> float:
    """Return how long to wait for a message: at the front until the lease may have ended.

    The waiter right behind the front looks after a second, in case all before it died with the holder.
    """
    if position == 0:
        return min(max(left_seconds, 0.0) + 0.01, 1.0)
    if position < FRONT:
        return min(max(left_seconds, 0.0), 1.0) + 0.05 * position
    # in all not many at once: a thousand look some two hundred times a second
    return min(position / FRONT, 5.0) * random.uniform(0.8, 1.2)  # noqa: S311
