"""`HostSemaphore`: the processes of one machine share n permits. Files and the kernel, no server.

A permit is an exclusive `flock` on one of n files; the kernel gives it back when the process ends, however it
ends. A waiter queues behind one more lock, and only the head of that queue looks at the permits.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path

from idempotency.locks.engine import holder
from idempotency.locks.engine.contexts import AsyncWithStatement, Entered, WithStatement
from idempotency.locks.engine.holds import whole_number
from idempotency.locks.engine.steps import DEFAULT, BesideTheLoop, Blocking, Pause, Steps, deadline_of, operation
from idempotency.locks.engine.waits import Rest
from idempotency.locks.errors import not_held

LOOK_SECONDS = 0.002  # between looks of the queue's head; flock cannot wait for one of several


class PermitsOfOneHost(Entered):
    """Source of both faces.

    Args:
        name: any text; the same name, folder and user is the same semaphore.
        permits: their number.
        folder: on a local disk, where the users of it may write; None: one of this user's in the temporary folder.
        wait_seconds: None for ever, 0 not at all.
    """

    def __init__(
        self, name: str, *, permits: int, folder: Path | None = None, wait_seconds: float | None = None
    ) -> None:
        super().__init__(name, wait_seconds=wait_seconds)
        self.permits = whole_number("permits", permits)
        self._folder = folder or Path(tempfile.gettempdir()) / f"payonce-{os.getuid()}"
        self._stem = hashlib.sha256(name.encode()).hexdigest()[:32]
        self._files: dict[str, list[int]] = {}
        self._process = os.getpid()

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take one permit; return False when the time was over.

        Raises:
            OSError: the folder cannot be written.
        """
        self._make_folder()
        rest = Rest(deadline_of(self._limit(wait_seconds)))
        self._waits.add(rest)
        head, process = None, os.getpid()
        try:
            while True:
                head = self._locked("line") if head is None else head
                if head is not None and (permit := self._any_permit()) is not None:
                    self._own().append(permit)
                    return True
                if time.monotonic() >= rest.deadline:
                    return False
                yield Pause(LOOK_SECONDS)
        finally:
            self._waits.discard(rest)
            if head is not None:
                _unlocked(head, process=process)

    @operation
    def release(self) -> Steps[None]:
        """Give back what the caller acquired last.

        Raises:
            NotHeld: the caller has no permit.
        """
        if not self._own():
            raise not_held(self.name)
        _unlocked(self._own().pop(), process=self._process)
        return
        yield  # an operation without a step

    @operation
    def total(self) -> Steps[int]:
        """Return the number of permits."""
        return self.permits
        yield  # an operation without a step

    @operation
    def acquired(self) -> Steps[int]:
        """Return how many permits are out. An acquire that does not wait may meanwhile miss a free one."""
        self._make_folder()
        return self.permits - sum(map(self._is_free, range(self.permits)))
        yield

    @operation
    def available(self) -> Steps[int]:
        """Return how many permits are free; as `acquired`."""
        return self.permits - (yield from PermitsOfOneHost.acquired.steps(self))

    @property
    def held(self) -> int:
        """Number of permits that the caller has."""
        return len(self._own())

    def _own(self) -> list[int]:
        if self._process != os.getpid():  # a fork shares the files: ours to close, not to hold
            for files in self._files.values():
                for file in files:
                    os.close(file)
            self._files, self._process = {}, os.getpid()
        return self._files.setdefault(holder.current().name, [])

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _is_free(self, number: int) -> bool:
        file = self._locked(str(number), fcntl.LOCK_SH)
        if file is not None:
            _unlocked(file, process=os.getpid())
        return file is not None

    def _any_permit(self) -> int | None:
        locked = (self._locked(str(number)) for number in range(self.permits))
        return next((file for file in locked if file is not None), None)

    def _locked(self, part: str, how: int = fcntl.LOCK_EX) -> int | None:
        """Open and lock a file; None if another has it."""
        file = os.open(self._folder / f"{self._stem}.{part}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file


def _unlocked(file: int, *, process: int) -> None:
    """Unlock and close a file; only close it where another process has locked it."""
    # a forked child has it too: closed alone, it would stay locked
    if os.getpid() == process:
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


class HostSemaphore(Blocking, WithStatement, PermitsOfOneHost):
    """Permits of one machine, for threads and processes. See `PermitsOfOneHost` for its arguments."""


class AsyncHostSemaphore(BesideTheLoop, AsyncWithStatement, PermitsOfOneHost):
    """`HostSemaphore` for asyncio."""
