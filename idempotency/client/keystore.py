"""Stores of keys: an intent has the same key for ever, even after the process was killed.

A key is the header's value as it is sent, quotes included: the draft asks for a string of RFC 8941, and a service
that compares the bytes must see the same ones each time.
"""

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from idempotency.client.errors import IntentBoundElsewhere

_SCHEMA = """
CREATE TABLE IF NOT EXISTS intents (
    intent TEXT PRIMARY KEY NOT NULL,
    target TEXT NOT NULL,
    key TEXT NOT NULL,
    used_at REAL NOT NULL
) WITHOUT ROWID
"""
# one file is created by one thread of the process at a time, see FileKeys._create
_creating = threading.Lock()


def new_key() -> str:
    """Make a unique key of 122 random bits, as the quoted string that the header takes."""
    return f'"{uuid.uuid4()}"'


class Keys(Protocol):
    """Store of keys, as the transports use it; several threads may call a method at once."""

    def obtain(self, intent: str, *, target: str) -> str:
        """Return the intent's key; make and store one if it has none.

        Args:
            intent: the caller's name for an effect that shall happen once.
            target: method and URL.

        Raises:
            IntentBoundElsewhere: the key was made for another target.
        """

    def forget(self, intent: str) -> bool:
        """Drop the intent's key: used again, the intent is a new one. Return whether there was one."""

    def prune(self, *, older_than_seconds: float) -> int:
        """Drop the intents that were not used for longer than this; return their number."""


@dataclass(slots=True)
class _Stored:
    target: str
    key: str
    used_at: float


class MemoryKeys:
    """Keys in memory, for as long as the process lives.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stored: dict[str, _Stored] = {}

    def obtain(self, intent: str, *, target: str) -> str:
        with self._lock:
            stored = self._stored.setdefault(intent, _Stored(target, new_key(), 0.0))
            _refuse_another(intent, stored.target, target)
            stored.used_at = self._clock()
            return stored.key

    def forget(self, intent: str) -> bool:
        with self._lock:
            return self._stored.pop(intent, None) is not None

    def prune(self, *, older_than_seconds: float) -> int:
        with self._lock:
            limit = self._clock() - older_than_seconds
            old = [intent for intent, stored in self._stored.items() if stored.used_at < limit]
            for intent in old:
                del self._stored[intent]
            return len(old)


class FileKeys:
    """Keys in one SQLite file, readable by its owner only, for processes of one machine.

    A key is on the disk, synced, before `obtain` returns it. Each call opens the file, so there is nothing to
    close, and a fork is safe. Not for a network file system, whose locks are unreliable.

    Args:
        path: the file; it is created, its folder is not.
        busy_timeout_seconds: how long to wait for other processes.
        clock: seconds since the epoch.

    Raises:
        OSError: the file cannot be created.
        sqlite3.Error: it is no such file, or cannot be written; every method may raise it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_seconds: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = Path(path).absolute()
        self._busy_timeout_seconds = busy_timeout_seconds
        self._clock = clock
        self._create()
        with self._transaction() as database:
            database.execute(_SCHEMA)

    def obtain(self, intent: str, *, target: str) -> str:
        with self._transaction() as database:
            row = database.execute("SELECT target, key FROM intents WHERE intent = ?", (intent,)).fetchone()
            stored, key = row or (target, new_key())
            _refuse_another(intent, stored, target)
            database.execute(
                "INSERT INTO intents VALUES (?, ?, ?, ?)"
                " ON CONFLICT (intent) DO UPDATE SET used_at = excluded.used_at",
                (intent, target, key, self._clock()),
            )
        return str(key)

    def forget(self, intent: str) -> bool:
        with self._transaction() as database:
            return database.execute("DELETE FROM intents WHERE intent = ?", (intent,)).rowcount > 0

    def prune(self, *, older_than_seconds: float) -> int:
        limit = self._clock() - older_than_seconds
        with self._transaction() as database:
            return database.execute("DELETE FROM intents WHERE used_at < ?", (limit,)).rowcount

    def _create(self) -> None:
        """Create an empty file of mode 0600; SQLite would take the umask's mode.

        Under a lock of the process: closing a file drops the POSIX locks that any thread of the process has on
        it, so no thread may be in SQLite with this file before it is closed here.
        """
        with _creating, suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # mode=rw: a file that was removed is an error; a new, empty one in its place would forget every key
        with closing(
            sqlite3.connect(
                f"{self._path.as_uri()}?mode=rw",
                uri=True,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
            )
        ) as database:
            # EXTRA also syncs the folder once the journal is gone; with FULL, a power cut could bring the journal
            # back, which undoes the commit. fullfsync is for macOS, whose fsync stops at the disk's cache
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute("PRAGMA fullfsync = ON")
            # the write lock first: of two that look for one intent, the second finds the first's key
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise


def _refuse_another(intent: str, stored: str, target: str) -> None:
    if stored != target:
        raise IntentBoundElsewhere(
            f"The intent {intent!r} was used for {stored!r} before and cannot be used for {target!r}. "
            "Give each call its own intent."
        )
