"""`ReadWriteLock`: many readers or one writer, in the order of arrival: neither starves."""

from typing import Unpack

from idempotency.locks.engine.contexts import AsyncWithStatement, Settings, WithStatement
from idempotency.locks.engine.tasks import OnTasks
from idempotency.locks.engine.threads import OnThreads
from idempotency.locks.mutex import Mutex


class _Writing(Mutex):
    _kind = "readwrite"
    _capacity = 2**31  # readers at most
    _fair = True


class _Reading(_Writing):
    _share = (1, 0)


class ReadLock(OnThreads, WithStatement, _Reading):
    """Side of the readers; a lock like `Lock`."""


class WriteLock(OnThreads, WithStatement, _Writing):
    """Side of the writer; a lock like `Lock`."""


class AsyncReadLock(OnTasks, AsyncWithStatement, _Reading):
    """`ReadLock` for asyncio."""


class AsyncWriteLock(OnTasks, AsyncWithStatement, _Writing):
    """`WriteLock` for asyncio."""


class ReadWriteLock:
    """Pair of locks of one name.

    Args:
        name: any text.
        settings: as of `Lock`, for both.

    Attributes:
        read: shared with other readers.
        write: excludes everyone else.
    """

    def __init__(self, name: str, **settings: Unpack[Settings]) -> None:
        self.read = ReadLock(name, **settings)
        self.write = WriteLock(name, **settings)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.read._key}>"


class AsyncReadWriteLock:
    """`ReadWriteLock` for asyncio."""

    __repr__ = ReadWriteLock.__repr__

    def __init__(self, name: str, **settings: Unpack[Settings]) -> None:
        self.read = AsyncReadLock(name, **settings)
        self.write = AsyncWriteLock(name, **settings)
