"""Kinds of clients of redis-py."""

from inspect import iscoroutinefunction
from typing import Any

from redis.cluster import RedisCluster


def is_cluster(client: Any) -> bool:
    return isinstance(client, RedisCluster) or type(client).__module__ == "redis.asyncio.cluster"


def refuse_other_client(client: Any, *, awaited: bool) -> None:
    """Raise `ValueError` for what is no client of redis-py, or of its other face (`awaited`)."""
    ask = getattr(client, "execute_command", None)
    # by class too: what instruments a client may put a plain function in place of its coroutine function
    awaits = iscoroutinefunction(ask) or any("asyncio" in base.__module__ for base in type(client).__mro__)
    if ask is None or awaits != awaited:
        kind = "redis.asyncio, for asyncio" if awaited else "redis, for threads"
        raise ValueError(f"client= must be a client of {kind}, not {type(client)}")
