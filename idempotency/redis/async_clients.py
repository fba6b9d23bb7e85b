"""asyncio clients of the Redis that the settings of `IDEMPOTENCY` name, one a loop."""

import asyncio
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from redis.asyncio import Redis

from idempotency.conf import config

_OPTIONS = ("USERNAME", "PASSWORD", "SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT")  # of django-redis; plain values
_clients: dict[asyncio.AbstractEventLoop, Any] = {}


def async_client() -> Any:
    """Return the running loop's client. It lasts as long as the loop, or until `close_client`.

    Raises:
        ImproperlyConfigured: no Redis is configured, or only one that needs a function to be reached.
    """
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        drop_closed(_clients)
        _clients[loop] = _make_client()
    return _clients[loop]


async def close_client() -> None:
    """Close the connections of the running loop's client, before the loop ends."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def drop_closed(of_loops: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Forget the values of closed loops. They lead to their loops, so weak keys would never go."""
    for loop in list(of_loops):
        if loop.is_closed():
            of_loops.pop(loop, None)


def _make_client() -> Any:
    path, alias, client = config().redis_async_client, config().redis_alias, config().redis_client
    if path is not None:
        return import_string(path)()
    if client is not None and "://" in client:
        return Redis.from_url(client)
    if client is not None or alias is None:
        raise ImproperlyConfigured(
            "IDEMPOTENCY['REDIS_ASYNC_CLIENT'] must name a function that returns a redis.asyncio client: asyncio "
            "locks cannot be reached by the function that REDIS names, or without Redis."
        )
    cache: Any = settings.CACHES[alias]
    location = cache["LOCATION"]
    options = cache.get("OPTIONS", {})
    given = {name.lower(): options[name] for name in _OPTIONS if options.get(name)}
    return Redis.from_url(location if isinstance(location, str) else location[0], **given)
