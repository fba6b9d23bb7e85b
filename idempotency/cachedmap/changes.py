"""Changes of a map's entries, for a caller that listens: a hint each, as the messages of a `Topic`."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async

from idempotency.locks import Topic

WAIT_SECONDS = 1.0  # for which a thread waits beside a loop, before it looks whether that goes on
_WHAT = {"+": "created", "=": "updated", "-": "removed", "~": "expired", "!": "evicted", "*": "cleared"}


class Change(NamedTuple):
    """Change of an entry, by any process.

    Attributes:
        what: `created`; `updated`, also of what a map sets that stores nothing; `removed`, also where nothing was;
            `expired`, when a command finds it, which may be late; `evicted`, as least recently used; `cleared`.
        key: None for `cleared`, which is of all.
    """

    what: str
    key: str | None


class Changes:
    """Changes that a thread has received and not yet taken."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def take(self, *, wait_seconds: float) -> Change | None:
        """Return the next change; None first of all, and where some may have been missed.

        Raises:
            TimeoutError: none came within `wait_seconds`.
        """
        message = self._messages.take(wait_seconds=wait_seconds)
        return Change(_WHAT.get(message[:1], "updated"), message[1:] or None) if message else None


class Heard:
    """Base of a map that can be listened to."""

    name: str
    _client: Any

    @contextmanager
    def listen(self) -> Iterator[Changes]:
        """Receive changes from now on, on the subscriber that the process has. What is read is no change."""
        if not self.name:
            raise TypeError("A map of this process alone has no changes to hear.")
        with Topic(f"map:{self.name}", client=self._client).listen() as messages:
            yield Changes(messages)

    async def achanges(self) -> AsyncGenerator[Change | None, None]:
        """Iterate over what `listen` receives, without end."""
        listening = ExitStack()
        try:
            changes = await sync_to_async(listening.enter_context)(self.listen())
            take = sync_to_async(changes.take, thread_sensitive=False)
            while True:
                with suppress(TimeoutError):
                    yield await take(wait_seconds=WAIT_SECONDS)
        finally:
            await sync_to_async(listening.close)()
