"""Part of a map in Redis: the script of each command, and its entries as they are there.

One process at a time reads a key; the subscriber of a process hears of changes by the map's topic.
"""

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.utils.encoding import force_str

from idempotency.arguments import LONGEST_SECONDS, lasting, text
from idempotency.cachedmap.copies import Copies
from idempotency.conf import config
from idempotency.locks import Lock, LockError, Topic
from idempotency.names import prefix
from idempotency.redis import fastpath
from idempotency.redis.fastpath import Script

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

FLIGHT_SECONDS = 10.0  # for which a caller waits while another process reads the value; then it reads too
MICROSECONDS = 1_000_000
PAGE_ENTRIES = 100  # about so many does an iteration hold

_MAP = Script("cachedmap", package="idempotency.cachedmap")


def awaited(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make the form of a method for asyncio, which does the same in a thread beside the loop."""
    name, owner = method.__name__, method.__qualname__.rpartition(".")[0]

    @wraps(method)
    async def beside_the_loop(*args: P.args, **kwargs: P.kwargs) -> T:
        this, *rest = args
        return await sync_to_async(getattr(this, name))(*rest, **kwargs)  # type: ignore[no-any-return]

    beside_the_loop.__name__, beside_the_loop.__doc__ = f"a{name}", f"Do what `{name}` does."
    beside_the_loop.__qualname__ = f"{owner}.a{name}"  # or a warning of one that nobody awaits names the other
    return beside_the_loop


@dataclass(frozen=True, slots=True)
class Entry(Generic[V]):
    """Value with its own times to live, `math.inf` for ever. `read` may return one."""

    value: V
    ttl_seconds: float | None = None
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        lasting("ttl_seconds", self.ttl_seconds)
        lasting("idle_seconds", self.idle_seconds)


class InRedis(Generic[V]):
    """Base of a map: its commands, and what reads all of it."""

    name: str
    alone = False
    _client: Any
    _stored: bool
    _behind: set[str]  # prefixes of maps that have missed a change
    _of_tenant: dict[str, Copies]
    _lives: Entry[None]
    _entries_max: int
    _dumps: Callable[[V], str | bytes]
    _loads: Callable[[bytes], V]

    def size(self) -> int:
        """Count the entries of Redis, or of this process while it is away or stores none."""
        reply = self._ask("size") if self._stored else None
        return len(self._copies().items()) if reply is None else int(reply[0])

    def items(self) -> Iterator[tuple[str, V]]:
        """Iterate over the entries of Redis by the page, or over this process's while it is away.

        That is no use of them. What changes meanwhile may come or not, or twice.
        """
        cursor: int | None = 0
        while cursor is not None:
            page, cursor = self._page(cursor)
            yield from page

    def keys(self) -> Iterator[str]:
        """Iterate over the keys of `items`."""
        return (key for key, _ in self.items())

    def remaining_seconds(self, key: str) -> float:
        """Return how long an entry lasts unused: infinite for ever, 0.0 where none is stored."""
        text("key", key)
        reply = self._ask("life", key) if self._stored else None
        if reply is None:
            copy = self._copies().items().get(key)
            return copy.remaining_seconds if copy else 0.0
        seconds: float = reply[0] / MICROSECONDS
        return seconds if seconds <= LONGEST_SECONDS else math.inf

    asize = awaited(size)
    aremaining_seconds = awaited(remaining_seconds)

    async def aitems(self) -> AsyncIterator[tuple[str, V]]:
        """Iterate as `items` does."""
        cursor: int | None = 0
        while cursor is not None:
            page, cursor = await sync_to_async(self._page)(cursor)
            for item in page:
                yield item

    async def akeys(self) -> AsyncIterator[str]:
        """Iterate over the keys of `aitems`."""
        async for key, _ in self.aitems():
            yield key

    def _page(self, cursor: int) -> tuple[list[tuple[str, V]], int | None]:
        """Return the entries at `cursor`, and the next; None after the last."""
        reply = self._ask("page", cursor, PAGE_ENTRIES) if self._stored else None
        if reply is None:
            return [(key, copy.value) for key, copy in self._copies().items().items()], None
        pairs = zip(reply[1::2], reply[2::2], strict=True)
        return [(force_str(key), self._loads(value)) for key, value in pairs], int(reply[0]) or None

    def _copies(self, *, listen: bool = True) -> Copies:
        tenant = prefix()
        copies = self._of_tenant.get(tenant)
        if copies is None:
            copies = self._of_tenant.setdefault(tenant, Copies(self._entries_max))
        if listen and not self._hears(copies) and (client := self._client_to_listen()) is not None:
            with copies.lock:
                if copies.messages is None:
                    topic = Topic(f"map:{self.name}", client=client)
                    copies.messages = copies.listening.enter_context(topic.listen())
        return copies

    def _hears(self, copies: Copies) -> bool:
        """Return whether changes of other processes end the copies, where there are any."""
        return copies.messages is not None or not (self.name and (self._client is not None or config().uses_redis))

    def _client_to_listen(self) -> Any:
        """Return a client for the subscriber, which reconnects by itself; None while there is none."""
        if self._client is not None or not fastpath.may_ask():
            return self._client
        try:
            return fastpath.client()
        except fastpath.FAILURES as error:
            fastpath.failed(error)
            return None

    def _times(self, entry: Entry[V]) -> tuple[float, float]:
        ttl = self._lives.ttl_seconds if entry.ttl_seconds is None else entry.ttl_seconds
        idle = self._lives.idle_seconds if entry.idle_seconds is None else entry.idle_seconds
        return math.inf if ttl is None else ttl, math.inf if idle is None else idle

    def _packed(self, entries: Mapping[str, Entry[V]]) -> list[Any]:
        times = map(_microseconds, self._times(next(iter(entries.values()))))
        pairs = [part for key, entry in entries.items() for part in (key, self._dumps(entry.value))]
        return [*times, self._entries_max, *pairs]

    @contextmanager
    def _flight(self, key: str) -> Iterator[None]:
        """Let one process at a time read `key`; a process that waits for long reads too."""
        held, lock = False, Lock(f"map:{self.name}:{key}", client=self._client, release_seconds=0)
        with suppress(LockError):
            held = lock.acquire(wait_seconds=FLIGHT_SECONDS)
        try:
            yield
        finally:
            if held:
                with suppress(LockError):
                    lock.release()

    def _ask(self, *what: Any) -> list[Any] | None:
        """Run the script; None without Redis."""
        tenant = prefix()
        root = f"{tenant}:map:{{map:{self.name}}}"
        keys = [root, f"{root}:used", f"{root}:changes", Topic(f"map:{self.name}").channel]

        def ask(redis: Any) -> Any:
            is_behind = tenant in self._behind
            self._behind.discard(tenant)  # first: another thread's change may be missed meanwhile
            try:
                if is_behind and what[0] != "clear":
                    _MAP(redis, keys, ["clear"])
                return _MAP(redis, keys, list(what))
            except BaseException:
                if is_behind:
                    self._behind.add(tenant)
                raise

        if self._client is None:
            reply = fastpath.attempt(ask)
        else:
            try:
                reply = ask(self._client)
            except fastpath.FAILURES:
                reply = None
        self.alone = reply is None
        return reply


def _microseconds(seconds: float) -> int:
    """Convert a time for the script; 0 is for ever."""
    return 0 if math.isinf(seconds) else max(1, round(seconds * MICROSECONDS))
