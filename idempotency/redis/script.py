"""Lua scripts, run by their digest and sent whole to a server that lacks them."""

import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any

from idempotency.redis.connection import Connection, connection_of
from idempotency.redis.fastpath import breaker


class Script:
    """A script of a package's folder `scripts`, after the ones that it shares code with.

    Every key of a call must carry the same hash tag, or a Redis Cluster refuses it.

    Args:
        names: of the files, without ``.lua``, in the order in which they are joined.
        package: whose `scripts` they are in.
    """

    def __init__(self, *names: str, package: str) -> None:
        folder = resources.files(package).joinpath("scripts")
        self.text = "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, client: Any, keys: list[str], arguments: list[Any]) -> Any:
        """Run on this thread's connection to where `client` leads, and return the reply."""
        return self.run(connection_of(client), keys, arguments)

    def run(self, connection: Connection, keys: list[str], arguments: list[Any]) -> Any:
        """Run on `connection` and return the reply, or raise what the client raises."""
        parts = (len(keys), *keys, *arguments)
        try:
            reply = connection.ask("EVALSHA", self.sha, *parts)
        except Exception as error:
            if not _is_unknown(error):
                raise
            connection.known.clear()
            reply = connection.ask("EVAL", self.text, *parts)
        connection.known.add(self.sha)
        return reply

    def send_nowait(
        self,
        connection: Connection,
        keys: list[str],
        arguments: list[Any],
        *,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """Send without waiting for the reply, if the server has the script and is not being probed. Else `run`.

        Args:
            then: called with the reply when it is read; never, if it is lost.
        """
        if self.sha in connection.known and breaker.is_closed:
            connection.send_nowait("EVALSHA", self.sha, len(keys), *keys, *arguments, then=then)
            return
        reply = self.run(connection, keys, arguments)
        if then is not None:
            then(reply)

    async def run_async(self, ask: Callable[..., Any], keys: list[str], arguments: list[Any]) -> Any:
        """Run by a connection's `ask` that is awaited, and return the reply."""
        parts = (len(keys), *keys, *arguments)
        try:
            return await ask("EVALSHA", self.sha, *parts)
        except Exception as error:
            if not _is_unknown(error):
                raise
            return await ask("EVAL", self.text, *parts)


def _is_unknown(error: Exception) -> bool:
    # by name: valkey-py has a class of its own
    return type(error).__name__ == "NoScriptError"
