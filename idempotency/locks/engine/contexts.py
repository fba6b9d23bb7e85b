"""`with` and `async with` for what has `enter` and `release`."""

import logging
from types import TracebackType
from typing import Self

from idempotency.locks.errors import LockError

log = logging.getLogger(__name__)


class WithStatement:
    """`with lock:`, for faces of threads that have `enter` and `release`."""

    def __enter__(self) -> Self:
        self.enter()  # type: ignore[attr-defined]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()  # type: ignore[attr-defined]
        except LockError as lost:
            if error is None:
                raise
            log.warning("While an error is on its way: %s", lost)  # which says more


class AsyncWithStatement:
    """`async with lock:`, for faces of asyncio that have `enter` and `release`."""

    async def __aenter__(self) -> Self:
        await self.enter()  # type: ignore[attr-defined]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()  # type: ignore[attr-defined]
        except LockError as lost:
            if error is None:
                raise
            log.warning("While an error is on its way: %s", lost)  # which says more
