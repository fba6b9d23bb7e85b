"""`CachedMap`: values by key, for what is read often and may be a moment old.

    names = CachedMap("names", read=name_of, ttl_seconds=600)
    names.get("17")

A value that is missing is read by one process, and the others get it. A change reaches the copies of all processes
at once, by the one subscriber of each; a copy ends by itself where a message is lost. Nothing may be decided on a
copy. Without Redis every process goes by its own copies. A caller that listens hears how entries change.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload
from weakref import WeakSet

from asgiref.sync import sync_to_async

from idempotency.arguments import bounded, callback, text, whole_number
from idempotency.cachedmap.changes import Listenable
from idempotency.cachedmap.copies import MISSING, Copies
from idempotency.cachedmap.in_redis import MICROSECONDS, Entry, InRedis, awaited
from idempotency.names import prefix

log = logging.getLogger(__name__)

D = TypeVar("D")
V = TypeVar("V")

REFUSED, PUT, OTHER = 0, 1, 2  # what the script replies to `add` and `replace`; OTHER: not the expected value


class CachedMap(InRedis[V], Listenable):
    """Map for threads and processes; `aget`, `aset` and so on for asyncio.

    Args:
        name: any text; the same name is the same map everywhere. Empty: a map of this process alone.
        read: gives the value of a key that is missing, or an `Entry`; None: it has none.
        write: called before a change with the key and its value, None for one that is removed.
        ttl_seconds: life of an entry; None: for ever.
        idle_seconds: after which an entry ends that nobody gets; None: never.
        entries_max: beyond it the least recently used go: in Redis, and in each process.
        copy_seconds: life of a process's copy, at most; 0: no copies.
        stored: False: Redis has no values, and only carries changes from process to process.
        dumps, loads: of a value, to and from what Redis stores.
        client: a redis-py client; None takes the one of the settings, behind the package's breaker.

    Attributes:
        alone: Redis did not reply to the last command: this process reads and changes its own copies only. What
            changed meanwhile is cleared there when it replies again; if this process ends before, it lives on.
    """

    def __init__(
        self,
        name: str,
        *,
        read: Callable[[str], V | Entry[V] | None] | None = None,
        write: Callable[[str, V | None], None] | None = None,
        ttl_seconds: float | None = None,
        idle_seconds: float | None = None,
        entries_max: int = 1000,
        copy_seconds: float = 60.0,
        stored: bool = True,
        dumps: Callable[[V], str | bytes] = json.dumps,
        loads: Callable[[bytes], V] = json.loads,
        client: Any = None,
    ) -> None:
        if text("name", name) and not stored and read is None:
            raise TypeError(f"The map {name!r} stores nothing in Redis: give it read= for what a change ends.")
        self.name, self._client, self._stored = name, client, stored and bool(name)
        self._read, self._write = callback("read", read), callback("write", write)
        self._dumps, self._loads = dumps, loads
        self._lives = Entry(None, ttl_seconds, idle_seconds)
        self._entries_max = whole_number("entries_max", entries_max)
        self._copy_seconds = bounded("copy_seconds", copy_seconds, or_zero=True)
        self._begin()
        _maps.add(self)

    def _begin(self) -> None:
        self._of_tenant = {}  # a fork may have copied a lock while it was held
        self._behind = set()

    def close(self) -> None:
        """Forget the copies, and stop listening until the next `get`."""
        for copies in self._of_tenant.values():
            copies.listening.close()
        self._begin()

    @overload
    def get(self, key: str) -> V | None: ...
    @overload
    def get(self, key: str, default: D) -> V | D: ...
    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, read if it is missing; `default` where there is none."""
        copies = self._copies()
        value = copies.get(key)
        if value is MISSING:
            value = copies.single_flight(key, self._fetch)
        return default if value is MISSING else value

    def get_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return values of the keys that have one: copies, of Redis by one command, or else read."""
        copies = self._copies()
        changes, found = copies.changes, {text("key", key): copies.get(key) for key in keys}
        missing = [key for key, value in found.items() if value is MISSING]
        reply = self._ask("get", *missing) if self._stored and missing else None
        if reply is None:
            found |= {key: copies.single_flight(key, self._load) for key in missing}
        else:
            for key, stored, lasts in zip(missing, reply[1::2], reply[2::2], strict=True):
                if stored is not None:
                    found[key] = self._copied(copies, key, stored, lasts, changes=changes)
                elif self._read is not None:
                    found[key] = self.get(key, MISSING)
        return {key: value for key, value in found.items() if value is not MISSING}

    def put_if_absent(
        self, key: str, value: V, *, ttl_seconds: float | None = None, idle_seconds: float | None = None
    ) -> bool:
        """Store a value where there is none, then write it through. Return whether it was stored.

        That is so for one of all callers; while Redis is away, for one in each process.

        Raises:
            TypeError: Redis stores no values of this map.
        """
        self._refuse_unstored()
        entry = Entry(value, ttl_seconds, idle_seconds)
        return self.get(key, MISSING) is MISSING and self._put("add", key, entry) == PUT

    def replace(self, key: str, value: V, *, old: V = MISSING, **seconds: float | None) -> bool:
        """Store a value where there is one, then write it through. Return whether it was stored.

        A value that cannot be written is removed, to be read again. All else is as `put_if_absent` has it.

        Args:
            old: the value that must be there, compared as `dumps` writes it.
            seconds: `ttl_seconds`, `idle_seconds` as of `set`.
        """
        self._refuse_unstored()
        entry = Entry(value, **seconds)
        text("key", key)
        outcome = self._put("replace", key, entry, old)
        if outcome == REFUSED and self._read is not None and self.get(key, MISSING) is not MISSING:
            outcome = self._put("replace", key, entry, old)
        return outcome == PUT

    def set(
        self, key: str, value: V, *, ttl_seconds: float | None = None, idle_seconds: float | None = None
    ) -> None:
        """Store a value, written through; in this process alone while Redis is away.

        Args:
            ttl_seconds, idle_seconds: of this entry, in place of the map's.
        """
        self.set_many({text("key", key): value}, ttl_seconds=ttl_seconds, idle_seconds=idle_seconds)

    def set_many(self, values: Mapping[str, V], **seconds: float | None) -> None:
        """Store values as `set` does, in one command; where a write fails, those written before it."""
        entries = {text("key", key): Entry(value, **seconds) for key, value in values.items()}
        written: dict[str, Entry[V]] = {}
        try:
            for key, entry in entries.items():
                if self._write is not None:
                    self._write(key, entry.value)
                written[key] = entry
        finally:
            if written:
                self._set(written)

    def delete(self, key: str) -> None:
        """Remove an entry, written through."""
        text("key", key)
        if self._write is not None:
            self._write(key, None)
        self._change(self._copies(), [key], "remove", key)

    def clear(self) -> bool:
        """Have every process read again; call it after the commit. Return whether Redis has it."""
        return self._change(self._copies(), [], "clear") is not None

    @overload
    async def aget(self, key: str) -> V | None: ...
    @overload
    async def aget(self, key: str, default: D) -> V | D: ...
    async def aget(self, key: str, default: Any = None) -> Any:
        """Return what `get` does; a copy costs no thread once changes are heard."""
        copies = self._copies(listen=False)
        value = copies.get(key) if self._hears(copies) else MISSING
        return await sync_to_async(lambda: self.get(key, default))() if value is MISSING else value

    aget_many = awaited(get_many)
    aput_if_absent = awaited(put_if_absent)
    areplace = awaited(replace)
    aset = awaited(set)  # noqa: A003  the method above
    aset_many = awaited(set_many)
    adelete = awaited(delete)
    aclear = awaited(clear)

    def forget(self) -> None:
        """Have this process read again, for every tenant, without waiting for a read under way."""
        for copies in list(self._of_tenant.values()):
            copies.drop()

    def _fetch(self, copies: Copies, key: str) -> Any:
        """Return the value from Redis, or else read it; `MISSING` where there is none."""
        changes = copies.changes
        found = self._ask("get", key) if self._stored else None
        if found is None or (found[1] is None and self._read is None):
            return self._load(copies, key)
        if found[1] is not None:
            return self._copied(copies, key, *found[1:], changes=changes)
        with self._flight(key):
            changes = copies.changes
            found = self._ask("get", key)  # another process may have read it meanwhile
            if found is None or found[1] is None:
                return self._load(copies, key, filled_at=found and found[0])
            return self._copied(copies, key, *found[1:], changes=changes)

    def _copied(self, copies: Copies, key: str, stored: bytes, lasts: int, *, changes: int) -> Any:
        try:
            value = self._loads(stored)
        except Exception:  # of another version of the caller's code
            if self._read is None:
                raise
            log.warning("The map %r cannot load what Redis has for %r; it is read again.", self.name, key)
            self._change(copies, [key], "remove", key)
            return self._load(copies, key)
        seconds = min(lasts / MICROSECONDS / 2, self._copy_seconds)  # half: Redis must see that it is used
        copies.put(key, value, seconds=seconds, idle_seconds=math.inf, changes=changes)
        return value

    def _load(self, copies: Copies, key: str, *, filled_at: Any = None) -> Any:
        changes = copies.changes
        found = None if self._read is None else self._read(key)
        if found is None:
            return MISSING
        entry = found if isinstance(found, Entry) else Entry(found)
        if filled_at is not None:
            self._ask("fill", *self._packed({key: entry}), filled_at)
        self._keep(copies, key, entry, changes=changes)
        return entry.value

    def _keep(self, copies: Copies, key: str, entry: Entry[V], *, changes: int) -> None:
        ttl, idle = self._times(entry)
        if self._stored and (self._read is not None or not self.alone):  # else there is no other place for it
            ttl = min(ttl, idle / 2, self._copy_seconds)
        copies.put(key, entry.value, seconds=ttl, idle_seconds=idle, changes=changes)

    def _set(self, entries: Mapping[str, Entry[V]]) -> None:
        copies = self._copies()
        what = ["set", *self._packed(entries)] if self._stored else ["change", *entries]
        self._change(copies, entries, *what)
        if not self._stored or self.alone:
            for key, entry in entries.items():
                self._keep(copies, key, entry, changes=copies.changes)

    def _refuse_unstored(self) -> None:
        if self.name and not self._stored:
            raise TypeError(f"The map {self.name!r} stores nothing in Redis, where one of many could be first.")

    def _put(self, what: str, key: str, entry: Entry[V], old: Any = MISSING) -> int:
        """Store by the script's `add` or `replace`, then write through; removed where that fails."""
        copies, expected = self._copies(), [] if old is MISSING else [self._dumps(old)]
        reply = self._ask(what, *self._packed({key: entry}), *expected) if self._stored else None
        if reply is None:
            outcome = self._put_here(copies, what, key, entry, *expected)
        else:
            copies.drop(key)
            outcome = int(reply[0])
        if outcome == PUT and self._write is not None:
            try:
                self._write(key, entry.value)
            except BaseException:
                self._change(copies, [key], "remove", key)
                raise
        return outcome

    def _put_here(self, copies: Copies, what: str, key: str, entry: Entry[V], *expected: str | bytes) -> int:
        """Do in this process alone what the script does."""
        with copies.lock:
            copy = copies.get(key)
            if what == ("replace" if copy is MISSING else "add"):
                return REFUSED
            if expected and self._dumps(copy) != expected[0]:
                return OTHER
            copies.drop(key)
            self._behind.add(prefix())
            self._keep(copies, key, entry, changes=copies.changes)
        return PUT

    def _change(self, copies: Copies, keys: Iterable[str], *what: Any) -> list[Any] | None:
        """Run the script for a change of `keys`, or of all; None where Redis has missed it."""
        try:
            reply = self._ask(*what) if self.name else []
        finally:
            copies.drop(*keys)
        if reply is None:
            self._behind.add(prefix())
        return reply


_maps: WeakSet[CachedMap[Any]] = WeakSet()


def _begin_all() -> None:
    for each in _maps:
        each._begin()


os.register_at_fork(after_in_child=_begin_all)
