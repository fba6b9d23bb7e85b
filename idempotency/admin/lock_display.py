"""Locks of a name as operators see and release them, in the admin and by the command."""

import logging
import math
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.labels import utc
from idempotency.admin.lock_kinds import KINDS, servers
from idempotency.locks import LockError, Owner, State
from idempotency.models import LedgerEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownLock:
    """Lock of one kind.

    Attributes:
        kind: a key of `KINDS`.
        state: None where the server did not say.
        facts: sentences about its permits or its count.
        error: why the server did not say.
    """

    kind: str
    state: State | None
    facts: tuple[str, ...] = ()
    error: str = ""

    @property
    def words(self) -> Any:
        return KINDS[self.kind].words

    @property
    def holds(self) -> tuple[Owner | None, ...]:
        """List what an operator can end: each holder's hold, or None for the whole."""
        if self.state is None or KINDS[self.kind].has_holders:
            return self.state.owners if self.state else ()
        return (None,)


def shown(name: str) -> list[ShownLock]:
    """Ask for every kind of lock with this name. Raises ValueError for a bad name."""
    there = servers()
    asked = [_shown(kind, name) for kind, each in KINDS.items() if each.server in there]
    return [
        lock
        for lock in asked
        if lock.error or lock.facts or (lock.state and (lock.state.owners or lock.state.waiters))
    ]


def owner_of(kind: str, name: str, *, holder: str = "", token: int | None = None) -> Owner | None:
    """Return the holder of this name or token or both, if it still has the lock."""
    state = _shown(kind, name).state
    return next((owner for owner in (state.owners if state else ()) if is_hold(owner, holder, token)), None)


def is_hold(owner: Owner | None, holder: str, token: int | None) -> bool:
    """Return whether a hold has this holder's name and this token, where they are given."""
    if owner is None:
        return not holder and token is None
    return (not holder or owner.name == holder) and (token is None or owner.token == token)


def in_words(owner: Owner) -> str:
    about = {
        "name": owner.name,
        "since": utc(owner.since),
        "count": _("once") if owner.holds == 1 else _("%(count)s times") % {"count": owner.holds},
        "lease": lease_left(owner),
        "token": owner.token or _("unknown"),
    }
    return _("%(name)s since %(since)s UTC, %(count)s, %(lease)s, token %(token)s") % about


def lines(lock: ShownLock) -> list[str]:
    if lock.state is None:
        return [f"{lock.words}: {lock.error}"]
    facts = [f"  {fact}" for fact in lock.facts]
    holders = [f"  held by {in_words(owner)}" for owner in lock.state.owners]
    queue = [f"  {place}. in the queue: {waiter}" for place, waiter in enumerate(lock.state.waiters, start=1)]
    return [f"{lock.words} ({lock.kind})", *facts, *holders, *queue]


def lease_left(owner: Owner) -> str:
    seconds = owner.remaining_seconds
    if seconds == math.inf:
        return _("as long as its session")
    return _("%(seconds)s s left") % {"seconds": f"{seconds:.0f}"}


def release_by_force(kind: str, name: str, owner: Owner | None, *, user: Any, note: str) -> tuple[bool, str]:
    """Take a lock from its holder, or end a latch or limit, and log who did it and why.

    Args:
        owner: as it was shown; a later holder keeps the lock.
        user: who decides.

    Returns:
        Whether the server replied, and a sentence in the operator's language, as the admin's log has it.
    """
    replied, fault = True, ""
    if owner is None:
        done, gone = gettext_noop("ended"), gettext_noop("not in use any more")
    else:
        done, gone = gettext_noop("released by force"), gettext_noop("not held by it any more")
    try:
        with KINDS[kind].opened(name) as lock:
            if not KINDS[kind].end(lock, owner):
                done = gone
    except LockError as error:
        replied, done, fault = False, gettext_noop("release by force without success"), f" ({error})"
    what, became = f"{kind} {name!r}", f"{_(done)}{fault}"
    change = became
    if owner is not None:
        change = _("%(done)s, held by %(holder)s") % {"done": became, "holder": in_words(owner)}
    if apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry  # noqa: PLC0415  only where it is installed
        from django.contrib.contenttypes.models import ContentType  # noqa: PLC0415

        LogEntry.objects.create(
            user_id=user.pk,
            content_type=ContentType.objects.get_for_model(LedgerEntry),
            object_repr=what[:200],
            action_flag=CHANGE,
            change_message=f"{change}: {note}",
        )
    held = f", held by {owner.name}" if owner else ""
    log.warning("%s: %s %s%s%s: %s", user.get_username(), what, done, fault, held, note)
    return replied, _("%(lock)s: %(done)s.") % {"lock": what, "done": became}


def _shown(kind: str, name: str) -> ShownLock:
    asked = KINDS[kind]
    try:
        with asked.opened(name) as lock:
            return ShownLock(kind, asked.state(lock), tuple(asked.facts(lock)))
    except LockError as error:
        return ShownLock(kind, None, error=str(error))
