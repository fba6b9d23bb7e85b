"""Hub of a process at one server: its channel, waiters and holds, and what renews them.

The hubs of threads and of asyncio differ in waiting only; everything that decides is here.
"""

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from idempotency.arguments import text
from idempotency.conf import config
from idempotency.locks.engine import holder
from idempotency.locks.engine.holds import MICROSECONDS, Hold, Holds, Slots
from idempotency.locks.engine.steps import Ask, Steps
from idempotency.locks.errors import LockError, LockUnavailable
from idempotency.names import ROOT, prefix
from idempotency.redis.availability import is_denied, is_unavailable
from idempotency.redis.clients import is_cluster
from idempotency.redis.fastpath import Script
from idempotency.redis.mailbox import Mailbox

TICK_SECONDS = 1.0  # renewals due within a tick go in one batch
BATCH = 1000  # of holds in one command
ACL = "resetchannels ~*payonce:* &*payonce:* +@all -@dangerous"  # enough for a client's user


def tagged(kind: str, name: str, own_prefix: str | None = None) -> str:
    """Build the key of a resource, with which its other keys begin; the name is their hash tag.

    Call it at each use, not once: the same name is another lock at each tenant, unless it has a prefix of its own.

    Raises:
        ValueError: the tag would be empty, and a Redis Cluster would spread the keys.
    """
    if name[:1] in {"", "}"}:
        raise ValueError(f"name must not be empty or begin with a closing brace, unlike {name!r}")
    begin = prefix() if own_prefix is None else f"{quote(own_prefix, safe='')}:{ROOT}"
    return f"{begin}:{kind}:{{{name}}}"


def script(*names: str) -> Script:
    """Load a script of this package. No script makes a key of its own."""
    return Script(*names, package="idempotency.locks.engine")


_RENEW = script("renew")
_numbers = itertools.count(1)  # over all hubs of the process: two of them may lead to one server


class Hub(ABC):
    """Hub of one client of redis-py; a forked child makes its own."""

    bell: ClassVar[type[Any]]  # of what is waited for

    def __init__(self, client: Any, mailbox: Mailbox) -> None:
        self.client = client
        self.process = holder.process
        self.cluster = is_cluster(client)
        self.counted = not self.cluster  # PUBLISH counts all listeners; a node's counts its own subscribers alone
        self.mailbox = mailbox
        self.mail, self.channel = self.mailbox.mail, self.mailbox.channel
        self.holds = self.mail.holds = Holds(self.stir)
        self.slots = Slots(self.holds, self.new_request)

    def new_request(self) -> str:
        """Name one acquire or release, however often it is sent."""
        return f"{self.process}:{next(_numbers)}"

    @abstractmethod
    def stir(self) -> None:
        """Wake the watchdog: a renewal is due earlier than it thinks."""

    def renew(self, report: Callable[..., None]) -> Steps[None]:
        """Renew the holds that are due, a command for each batch; report one that failed."""
        due, size = self.holds.due(within_seconds=TICK_SECONDS), 1 if self.cluster else BATCH
        for batch in (due[at : at + size] for at in range(0, len(due), size)):
            try:
                yield from self.prolong(batch)
            except Exception as error:  # of any kind: the other holds and the next tick go on
                report("%d locks could not be renewed: %s", len(batch), error)
                for hold in batch:
                    hold.due_at = time.monotonic() + min(TICK_SECONDS, hold.lease_seconds / 10)
        self.holds.forget_ended()

    def prolong(self, holds: list[Hold], leases: list[float] | None = None) -> Steps[None]:
        """Renew holds, or give them new leases of so many seconds, and note which are gone."""
        sent_at = time.monotonic()
        leases = leases or [0.0 if hold.ends_by_itself(sent_at) else hold.lease_seconds for hold in holds]
        *ends, now = yield renewal(
            (hold.key, hold.owner, hold.token, lease) for hold, lease in zip(holds, leases, strict=True)
        )
        for hold, end in zip(holds, ends, strict=True):
            if end:
                hold.prolonged(sent_at + (end - now) / MICROSECONDS, at=sent_at)
            elif self.holds.get(hold.key, hold.owner) is hold:  # else it is being released
                hold.gone = not (hold.anyones and hold.lapsed)
                hold.over()
                if hold.anyones:
                    self.holds.remove(hold)


def renewal(holds: Iterable[tuple[str, str, int, float]]) -> Ask:
    """Make the command that renews holds, given as key, owner, token and lease in seconds.

    Its reply: the new ends, 0 for a hold that is gone, and at last the server's time.
    """
    keys: list[str] = []
    arguments: list[Any] = []
    for key, owner, token, lease_seconds in holds:
        keys.append(key)
        arguments += [owner, token, round(lease_seconds * MICROSECONDS)]
    return Ask(_RENEW, keys, arguments)


class Resource:
    """Base of everything that has a name at a server of Redis.

    Each operation raises `LockUnavailable` where the server does not reply in time.

    Args:
        name: any text; the same name is the same resource everywhere.
        client: a redis-py client (of `redis.asyncio` for asyncio), made once, not for a call; None: the settings'.
        prefix: of its keys, in place of that of the project, its database and tenant: to share it with others.
    """

    _kind: ClassVar[str]
    hub: Callable[[], Hub]  # performs its steps

    def __init__(self, name: str, *, client: Any = None, prefix: str | None = None) -> None:
        self.name = text("name", name)
        self.client = client
        self._prefix = None if prefix is None else text("prefix", prefix)
        self._waits: set[Any] = set()
        tagged(self._kind, name)  # refuses a bad name here

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key}>"

    @property
    def _key(self) -> str:
        return tagged(self._kind, self.name, self._prefix)


def lock_error(error: Exception) -> LockError:
    if is_denied(error):
        return LockError(
            f"Redis refuses its user what locks need, mostly PUBLISH ({error}). Allow it: ACL SETUSER … {ACL}"
        )
    if is_unavailable(error):
        return LockUnavailable(f"Redis did not answer: {type(error).__name__}")
    return LockError(f"Redis refused a command of a lock, whose keys may hold what is not ours: {error}")


def refuse_no_redis() -> None:
    if not config().uses_redis:
        raise ImproperlyConfigured(
            "A lock without client= uses the Redis of IDEMPOTENCY['REDIS'], which names none. Name one there, as "
            "'redis://localhost:6379/0', give the lock a client=, or use idempotency.locks.postgres."
        )
