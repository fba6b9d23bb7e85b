"""The clients that locks have where they are given none."""

import asyncio
import gc
import os
import weakref
from typing import Any

import pytest
import redis
import redis.asyncio
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from idempotency.conf import parse
from idempotency.locks import aio
from idempotency.locks.engine.hub import tagged
from idempotency.redis import async_clients
from tests.integration.idempotency.locks.actors import until

made: list[Any] = []


def a_client() -> Any:
    """What `REDIS_ASYNC_CLIENT` names here."""
    made.append(redis.asyncio.Redis.from_url(os.environ["REDIS_URL"]))
    return made[-1]


async def in_and_out() -> tuple[bool, bool]:
    first, second = aio.Lock("thing", wait_seconds=0), aio.Lock("thing", wait_seconds=0)
    try:
        async with first:
            held = await asyncio.create_task(second.acquire())
        return held, async_clients.async_client() is async_clients.async_client()
    finally:
        await aio.close()
        await aio.close()  # nothing is left to close


def test_a_function_of_the_project_makes_it(redis_server: redis.Redis) -> None:
    made.clear()
    with override_settings(IDEMPOTENCY={"REDIS_ASYNC_CLIENT": f"{__name__}.a_client"}):
        assert asyncio.run(in_and_out()) == (False, True)
    assert len(made) == 1


@pytest.mark.parametrize("pool", [redis.asyncio.ConnectionPool, redis.asyncio.BlockingConnectionPool])
def test_a_client_of_one_connection_waits_too(redis_server: redis.Redis, pool: Any) -> None:
    """The subscriber's connection is its own, not one of the client's."""

    async def story() -> list[bool]:
        client = redis.asyncio.Redis(connection_pool=pool.from_url(os.environ["REDIS_URL"], max_connections=1))
        first, second = aio.Lock("thing", client=client), aio.Lock("thing", client=client)
        free = await first.acquire(wait_seconds=5)
        waiting = asyncio.create_task(second.acquire(wait_seconds=20))
        await asyncio.to_thread(until, lambda: redis_server.zcard(f"{tagged('lock', 'thing')}:queue") == 1)
        await first.release()
        heard = await waiting
        await aio.close()
        await client.aclose(close_connection_pool=True)  # it was given, so it is not the client's to close
        return [free, heard]

    assert asyncio.run(story()) == [True, True]
    until(lambda: redis_server.client_list(_type="pubsub") == [], "its connection is given back")


@pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")
@pytest.mark.parametrize("closes", [True, False])
def test_a_loop_that_ended_leaves_nothing(redis_server: redis.Redis, closes: bool) -> None:
    """Each `async_to_sync` without a running loop is one."""
    left: list[weakref.ref[Any]] = []

    async def change_hands(name: str) -> None:
        first, second = aio.Lock(name), aio.Lock(name)
        left.extend(weakref.ref(each) for each in (asyncio.get_running_loop(), first.hub(), first.hub().client))
        assert await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.to_thread(until, lambda: redis_server.zcard(f"{tagged('lock', name)}:queue") == 1)
        await first.release()
        assert await waiting is True
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert {"locks-subscriber", "locks-watchdog"} <= tasks
        if closes:
            await aio.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    for number in range(2):
        asyncio.run(change_hands(f"thing {number}"))
    if not closes:
        asyncio.run(in_and_out())
    gc.collect()
    assert [each() for each in left] == [None] * 6


@pytest.mark.parametrize(
    ("given", "setting"),
    [({"REDIS": None}, "REDIS"), ({"REDIS": f"{__name__}.a_client"}, "REDIS_ASYNC_CLIENT")],
)
def test_without_a_way_to_redis_the_setting_is_named(given: dict[str, Any], setting: str) -> None:
    async def ask() -> None:
        with pytest.raises(ImproperlyConfigured, match=rf"IDEMPOTENCY\['{setting}'\]"):
            await aio.Lock("thing").acquire(wait_seconds=0)

    with override_settings(IDEMPOTENCY=given):
        asyncio.run(ask())
    with pytest.raises(ImproperlyConfigured, match="REDIS_ASYNC_CLIENT"):
        parse({"REDIS_ASYNC_CLIENT": "nowhere.at_all"})


def test_it_has_the_name_and_the_password_of_the_alias() -> None:
    options = {"USERNAME": "shop", "PASSWORD": "secret", "SOCKET_TIMEOUT": 3}
    backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/2", "OPTIONS": options}
    with override_settings(CACHES={"default": backend}, IDEMPOTENCY={"REDIS": "default"}):
        given = async_clients._make_client().connection_pool.connection_kwargs
    assert (given["username"], given["password"], given["socket_timeout"]) == ("shop", "secret", 3)
