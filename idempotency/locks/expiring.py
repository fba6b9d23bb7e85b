"""`ExpiringSet`: a set whose members are forgotten one by one, such as nonces seen within a replay window."""

from collections.abc import Callable
from typing import Any

from idempotency.locks.engine.holds import bounded
from idempotency.locks.engine.hub import Hub, script, tagged
from idempotency.locks.engine.steps import Ask, Steps, Tell, operation
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads

_REMEMBER = script("remember")


class Expiring:
    """The source of both faces.

    Args:
        name: any text; the same name is the same set everywhere.
        ttl_seconds: how long a member is remembered; at most 1e9, which is 31 years.
        client: as of `Lock`.
    """

    def __init__(self, name: str, *, ttl_seconds: float, client: Any = None) -> None:
        self.name = name
        self.client = client
        self._ttl_ms = max(1, round(bounded("ttl_seconds", ttl_seconds) * 1000))

    def hub(self) -> Hub:
        """Where it is asked for."""
        raise NotImplementedError

    @operation
    def add(self, member: str) -> Steps[bool]:
        """Remember `member`; whether it was new. Of many callers at once exactly one is told so.

        Raises:
            LockUnavailable: Redis did not answer.
        """
        return bool((yield Ask(_REMEMBER, *self._remembering(member))))

    @operation
    def note(self, member: str, *, known: Callable[[], None] | None = None) -> Steps[None]:
        """Remember `member`, for who need not know whether it was new: a thread does not wait for the answer.

        Args:
            known: called, if it was not new, when the answer is read: by a later question of any thread, or never.
                It must not raise.

        Raises:
            LockUnavailable: Redis could not be told.
        """

        def then(is_new: int) -> None:
            if known is not None and not is_new:
                known()

        yield Tell(_REMEMBER, *self._remembering(member), then)

    def _remembering(self, member: str) -> tuple[list[str], list[Any]]:
        # the name's length keeps ("a:b", "c") apart from ("a", "b:c")
        key = tagged("seen", f"{len(self.name)}:{self.name}:{member}")
        return [key], [self._ttl_ms, self.hub().new_request()]


class ExpiringSet(OnThreads, Expiring):
    """A set for threads and processes; see `Expiring` for its arguments."""


class AsyncExpiringSet(OnTasks, Expiring):
    """`ExpiringSet` for asyncio."""
