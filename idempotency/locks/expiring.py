"""`ExpiringSet`: members are forgotten one by one, such as nonces of a replay window."""

from collections.abc import Callable
from typing import Any

from idempotency.arguments import bounded, callback, text
from idempotency.locks.engine.hub import Resource, script, tagged
from idempotency.locks.engine.steps import Ask, SendNowait, Steps, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads

_REMEMBER = script("remember")


class Expiring(Resource):
    """Source of both faces.

    Args:
        name, client, prefix: as of `Resource`; here the name may be empty.
        ttl_seconds: how long a member is remembered; at most 1e9, which is 31 years.
    """

    _kind = "seen"

    def __init__(self, name: str, *, ttl_seconds: float, client: Any = None, prefix: str | None = None) -> None:
        # the name's length keeps ("a:b", "c") apart from ("a", "b:c")
        super().__init__(f"{len(text('name', name))}:{name}", client=client, prefix=prefix)
        self._ttl_ms = max(1, round(bounded("ttl_seconds", ttl_seconds) * 1000))

    @operation
    def add(self, member: str) -> Steps[bool]:
        """Add `member`; return whether it was new, for exactly one of concurrent callers."""
        return bool((yield Ask(_REMEMBER, *self._remembering(member))))

    @operation
    def note(self, member: str, *, known: Callable[[], None] | None = None) -> Steps[None]:
        """Remember `member` without waiting for the reply on a thread.

        Args:
            known: called, if it was not new, when the reply is read: by a later command of any thread, or never.
                It must not raise.
        """
        known = callback("known", known)
        yield SendNowait(_REMEMBER, *self._remembering(member), lambda new: None if new or not known else known())

    def _remembering(self, member: str) -> tuple[list[str], list[Any]]:
        key = tagged(self._kind, f"{self.name}:{text('member', member)}", self._prefix)
        return [key], [self._ttl_ms, self.hub().new_request()]


class ExpiringSet(OnThreads, Expiring):
    """Set for threads and processes; see `Expiring` for its arguments."""


class AsyncExpiringSet(OnTasks, Expiring):
    """`ExpiringSet` for asyncio."""
