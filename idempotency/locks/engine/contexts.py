"""Entering: `enter`, `with` and `async with` for everything that has `acquire` and `release`."""

import logging
from types import TracebackType
from typing import Any, Self

from idempotency.locks.engine.steps import Steps, operation
from idempotency.locks.errors import LockError, LockTimeout, NotHeld

log = logging.getLogger(__name__)

DEFAULT: Any = object()  # the constructor's value


class Entered:
    """Base of what is acquired within a time and released."""

    name: str
    acquire: Any
    _wait_seconds: float | None = None
    _raise_on_lost = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @operation
    def enter(self) -> Steps[None]:
        """Acquire, or raise `LockTimeout`, as `with` does. Any loss before a release is `LockLost` here."""
        if not (yield from self._entering()):
            raise LockTimeout(f"{self.name!r} was not free within {self._wait_seconds} s.")

    def _entering(self) -> Steps[bool]:
        return type(self).acquire.steps(self)  # type: ignore[no-any-return]

    def _limit(self, wait_seconds: float | None) -> float | None:
        """Return how long to wait: the argument, or the constructor's value."""
        return self._wait_seconds if wait_seconds is DEFAULT else wait_seconds

    def _raise_or_log(self, lost: LockError, error: BaseException | None) -> None:
        """Raise the failure of a release, unless the block's own error is on its way: that says more."""
        if error is None and (self._raise_on_lost or not isinstance(lost, NotHeld)):
            raise lost
        log.warning("At the end of `with`: %s", lost)


class WithStatement:
    """`with` statement, for faces of threads."""

    def __enter__(self) -> Self:
        self.enter()  # type: ignore[attr-defined]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()  # type: ignore[attr-defined]
        except LockError as lost:
            self._raise_or_log(lost, error)  # type: ignore[attr-defined]


class AsyncWithStatement:
    """`async with` statement, for faces of asyncio."""

    async def __aenter__(self) -> Self:
        await self.enter()  # type: ignore[attr-defined]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()  # type: ignore[attr-defined]
        except LockError as lost:
            self._raise_or_log(lost, error)  # type: ignore[attr-defined]
