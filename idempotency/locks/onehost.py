"""`HostSemaphore`: processes of one machine share n permits, by files, without a server.

A permit is an exclusive `flock` on a file, which names its holder; the kernel gives it back when the process ends,
and takes it from no living one: there is no release by force.
A waiter locks a file too, to be counted, and queues behind one more lock: only its holder looks at the permits.
"""

import contextlib
import fcntl
import hashlib
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Unpack

from idempotency.arguments import text, whole_number
from idempotency.locks.engine.contexts import AsyncWithStatement, Common, Entered, WithStatement
from idempotency.locks.engine.steps import DEFAULT, BesideTheLoop, Blocking, Pause, Steps, deadline_of, operation
from idempotency.locks.engine.waits import Rest
from idempotency.locks.errors import not_held
from idempotency.locks.state import AskedByHolder, Numbered, Owner, State

LOOK_SECONDS = 0.002  # between looks of the queue's head; flock cannot wait for one of several

_files: dict[int, object] = {}  # that this process has locked, and for whom


class PermitsOfOneHost(Numbered, AskedByHolder, Entered):
    """Source of both faces. A try may miss a permit while another caller asks for its holder.

    Args:
        name: any text; the same name, folder and user is the same semaphore.
        permits: their number; every caller goes by its own.
        folder: on a local disk, where the users of it may write; None: one of this user's in the temporary folder.
        settings: as of `Entered`. There is no token: a listener gets 0.
    """

    _unheard = dict.fromkeys(("lost", "expired"), "the process's end alone ends it")
    token = 0

    def __init__(
        self, name: str, *, permits: int, folder: str | Path | None = None, **settings: Unpack[Common]
    ) -> None:
        super().__init__(name, **settings)
        self.permits = whole_number("permits", permits)
        self._is_shared = folder is not None
        if folder is None:
            folder = Path(tempfile.gettempdir()) / f"payonce-{os.getuid()}"
        self._folder = folder if isinstance(folder, Path) else Path(text("folder", folder))
        self._stem = hashlib.sha256(name.encode()).hexdigest()[:32]

    @operation
    def acquire(self, *, wait_seconds: float | None = DEFAULT) -> Steps[bool]:
        """Take one permit; False when the time was over. OSError for a folder without write access."""
        rest = Rest(deadline_of(self._limit(wait_seconds)))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # anyone may have taken the name in the temporary folder first, to hold our permits or link our files there
        if not self._is_shared and self._folder.lstat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} is another user's. Name a folder= of your own.")
        self._waits.add(rest)
        line, head, place = next(self._paths("line")), None, None
        try:
            while True:
                head = _locked(line) if head is None else head
                free = islice(self._paths(""), self.permits)
                if head is not None and (permit := self._first_free(free)) is not None:
                    _files[permit] = self._folder, self._stem, self._holder().name
                    return True
                if time.monotonic() >= rest.deadline:
                    return False
                place = self._first_free(self._paths("wait")) if place is None else place
                yield Pause(LOOK_SECONDS)
        finally:
            self._waits.discard(rest)
            for file in (place, head):
                _unlocked(file)

    @operation
    def release(self) -> Steps[None]:
        """Give back what the caller acquired last, or raise `NotHeld`."""
        if not any(map(_unlocked, reversed(self._own()))):
            raise not_held(self.name)
        self._listeners("released", self)
        return
        yield  # an operation without a step

    @property
    def held(self) -> int:
        """Number of permits that the caller has."""
        return len(self._own())

    def _numbers(self) -> Steps[tuple[int, int]]:
        return self.permits, len((yield from self._state()).owners)

    def _state(self) -> Steps[State]:
        owners, waiters = (tuple(self._taken(part)) for part in ("", "wait"))
        return State(owners, tuple(waiter.name for waiter in waiters))
        yield

    def _own(self) -> list[int]:
        mine = self._folder, self._stem, self._holder().name
        return [file for file, whose in list(_files.items()) if whose == mine]

    def _paths(self, part: str) -> Iterator[Path]:
        return (self._folder / f"{self._stem}.{part}{number}" for number in count())

    def _taken(self, part: str) -> list[Owner]:
        """Return who has locked files of a part, the longest first; no caller leaves out a number."""
        found = []
        for path in takewhile(Path.exists, self._paths(part)):
            if (file := _locked(path, fcntl.LOCK_SH)) is not None:
                _unlocked(file)
            else:
                since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                found.append(Owner(path.read_bytes().decode(), None, since, math.inf, 1))
        return sorted(found, key=attrgetter("since"))

    def _first_free(self, paths: Iterable[Path]) -> int | None:
        file = next((file for path in paths if (file := _locked(path)) is not None), None)
        if file is not None:
            with contextlib.suppress(OSError):  # of a full disk: it is held without a name
                os.truncate(file, 0)
                os.write(file, self._holder().name.encode())
        return file


def _locked(path: Path, how: int = fcntl.LOCK_EX) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    _files[file] = ""
    return file


def _unlocked(file: int | None) -> bool:
    """Unlock and close a file. Return False if there is none, or it is closed already."""
    if file is None or _files.pop(file, None) is None:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)
    return True


def _close_all() -> None:
    while _files:  # what a fork's parent has locked would stay locked after its end
        os.close(_files.popitem()[0])


os.register_at_fork(after_in_child=_close_all)


class HostSemaphore(Blocking, WithStatement, PermitsOfOneHost):
    """Permits of one machine, for threads and processes. Arguments: `PermitsOfOneHost`."""


class AsyncHostSemaphore(BesideTheLoop, AsyncWithStatement, PermitsOfOneHost):
    """`HostSemaphore` for asyncio."""
