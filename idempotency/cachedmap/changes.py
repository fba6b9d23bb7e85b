"""Changes of a map's entries for a listener: hints, as the messages of a `Topic`."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async

from idempotency.locks import Topic
from idempotency.locks.topic import AsyncMessages, Messages

_WHAT = {"+": "created", "=": "updated", "-": "removed", "~": "expired", "!": "evicted", "*": "cleared"}


class Change(NamedTuple):
    """Change of an entry, by any process.

    Attributes:
        what: `created`; `updated`, also of what a map sets that stores nothing; `removed`, also where nothing was;
            `expired`, when a command finds it: late, or never of the entry that lasts longest; `evicted`, as least
            recently used; `cleared`.
        key: None for `cleared`, which is of all.
    """

    what: str
    key: str | None


class Changes(Messages):
    """Changes that a thread has received and not yet taken."""

    def take(self, *, wait_seconds: float | None) -> Change | None:  # type: ignore[override]
        """Return the next change; None first of all, and where some may have been missed.

        Raises:
            TimeoutError: none came within `wait_seconds`.
        """
        return _read(super().take(wait_seconds=wait_seconds))


class Listenable:
    """Base of a map that can be listened to."""

    name: str
    _client: Any

    @contextmanager
    def listen(self) -> Iterator[Changes]:
        """Receive changes from now on, by the process's subscriber. A read is no change."""
        changes = Changes()
        with self._topic().listen(changes):
            yield changes

    async def achanges(self) -> AsyncGenerator[Change | None, None]:
        """Iterate over what `listen` receives, without end."""
        messages, listening = _OfThread(), ExitStack()
        try:
            await sync_to_async(listening.enter_context)(self._topic().listen(messages))
            while True:
                yield _read(await messages.take(wait_seconds=None))
        finally:
            await sync_to_async(listening.close)()

    def _topic(self) -> Topic:
        if not self.name:
            raise TypeError("A map of this process alone has no changes to hear.")
        return Topic(f"map:{self.name}", client=self._client)


class _OfThread(AsyncMessages):
    """Messages for a task, from the thread that receives them."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def put(self, message: str | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(super().put, message)


def _read(message: str | None) -> Change | None:
    if not message:
        return None
    return Change(_WHAT.get(message[:1], "updated"), None if message[:1] == "*" else message[1:])
