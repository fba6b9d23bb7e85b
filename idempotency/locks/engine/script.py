"""The Lua scripts of this package; each runs by its digest, and is sent whole to a server that lacks it."""

import hashlib
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from idempotency.names import prefix


def tagged(kind: str, name: str) -> str:
    """Build the key of what has this name, with which its other keys begin; the name is their hash tag.

    Call it at each use, not once: the same name is another lock at each tenant.

    Raises:
        ValueError: the tag would be empty, and a Redis Cluster would spread the keys.
    """
    if name[:1] in {"", "}"}:
        raise ValueError(f"a name must not be empty or begin with a closing brace, as {name!r} does")
    return f"{prefix()}:{kind}:{{{name}}}"


class Script:
    """A script of `idempotency/locks/engine/scripts`, after the ones that it shares code with.

    Every key of a call carries the same hash tag, and no script makes a key of its own: a Redis Cluster takes it.
    """

    def __init__(self, *names: str) -> None:
        folder = resources.files("idempotency.locks.engine").joinpath("scripts")
        self.text = "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def run(self, ask: Callable[..., Any], keys: list[str], arguments: list[Any]) -> Any:
        """Its answer. `ask` sends a command and returns its answer, or raises what redis-py raises."""
        try:
            return ask("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
            return ask("EVAL", self.text, len(keys), *keys, *arguments)

    async def run_async(self, ask: Callable[..., Awaitable[Any]], keys: list[str], arguments: list[Any]) -> Any:
        """The same, awaited."""
        try:
            return await ask("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
            return await ask("EVAL", self.text, len(keys), *keys, *arguments)


def _is_unknown(error: Exception) -> bool:
    """Whether a fresh, flushed or newly promoted server lacks the script, as redis-py or valkey-py says it."""
    return type(error).__name__ == "NoScriptError"
