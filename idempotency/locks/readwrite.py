"""`ReadWriteLock`: many readers, or one writer; in the order of arrival, so that neither starves.

A writer may read as well, and go on reading when it has stopped writing. A reader that wants to write is refused:
two of them would wait for each other for ever.
"""

from typing import Any

from idempotency.locks.engine.contexts import AsyncWithStatement, WithStatement
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.mutex import Mutex

READERS_MAX = 2**31


class _Reading(Mutex):
    _kind = "readwrite"
    _capacity = READERS_MAX
    _fair = True
    _shared, _exclusive = 1, 0


class _Writing(Mutex):
    _kind = "readwrite"
    _capacity = READERS_MAX
    _fair = True


class ReadLock(OnThreads, WithStatement, _Reading):
    """The side of the readers; a lock like `Lock`."""


class WriteLock(OnThreads, WithStatement, _Writing):
    """The side of the writer; a lock like `Lock`."""


class AsyncReadLock(OnTasks, AsyncWithStatement, _Reading):
    """`ReadLock` for asyncio."""


class AsyncWriteLock(OnTasks, AsyncWithStatement, _Writing):
    """`WriteLock` for asyncio."""


class ReadWriteLock:
    """A pair of locks of one name.

    Args:
        name: any text.
        settings: as of `Lock`, for both.

    Attributes:
        read: shared with other readers.
        write: excludes everyone else.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        self.read = ReadLock(name, **settings)
        self.write = WriteLock(name, **settings)


class AsyncReadWriteLock:
    """`ReadWriteLock` for asyncio."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.read = AsyncReadLock(name, **settings)
        self.write = AsyncWriteLock(name, **settings)
