"""Asyncio half of `CachedMap`: each method does what the one of threads does, in a thread beside the loop."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from idempotency.cachedmap.copies import MISSING
from idempotency.cachedmap.in_redis import InRedis

V = TypeVar("V")


class OnTasks(InRedis[V]):
    """Methods of a map for asyncio, beside those of threads."""

    get: Callable[..., Any]
    get_many: Callable[[Iterable[str]], dict[str, V]]
    set: Callable[..., None]
    set_many: Callable[..., None]
    put_if_absent: Callable[..., bool]
    replace: Callable[..., bool]
    delete: Callable[[str], None]
    clear: Callable[[], bool]

    async def aget(self, key: str, default: Any = None) -> V | Any:
        """Return what `get` does; a copy costs no thread once changes are heard."""
        copies = self._copies(listen=False)
        value = copies.get(key) if self._hears(copies) else MISSING
        return await sync_to_async(self.get)(key, default) if value is MISSING else value

    async def aset(self, key: str, value: V, **seconds: float | None) -> None:
        """Store a value as `set` does."""
        await sync_to_async(self.set)(key, value, **seconds)

    async def aset_many(self, values: Mapping[str, V], **seconds: float | None) -> None:
        """Store values as `set_many` does."""
        await sync_to_async(self.set_many)(values, **seconds)

    async def areplace(self, key: str, value: V, *, old: V = MISSING, **seconds: float | None) -> bool:
        """Store a value as `replace` does."""
        return await sync_to_async(self.replace)(key, value, old=old, **seconds)

    async def adelete(self, key: str) -> None:
        """Remove an entry as `delete` does."""
        await sync_to_async(self.delete)(key)

    async def aget_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return what `get_many` does."""
        return await sync_to_async(self.get_many)(keys)

    async def aput_if_absent(self, key: str, value: V, **seconds: float | None) -> bool:
        """Store a value as `put_if_absent` does."""
        return await sync_to_async(self.put_if_absent)(key, value, **seconds)

    async def asize(self) -> int:
        """Count as `size` does."""
        return await sync_to_async(self.size)()

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

    async def aremaining_seconds(self, key: str) -> float:
        """Return what `remaining_seconds` does."""
        return await sync_to_async(self.remaining_seconds)(key)

    async def aclear(self) -> bool:
        """Have every process read again, as `clear` does."""
        return await sync_to_async(self.clear)()
