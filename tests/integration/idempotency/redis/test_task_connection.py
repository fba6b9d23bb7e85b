"""A loop's own connection to Redis: commands share it, each with its own reply."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency.redis import task_connection
from idempotency.redis.task_connection import TaskClient, TaskConnection, connection_of
from tests.conftest import hanging


@contextlib.asynccontextmanager
async def connected(**settings: Any) -> AsyncIterator[TaskConnection]:
    async with redis.asyncio.Redis.from_url(os.environ["REDIS_URL"], **settings) as client:
        made = connection_of(client)
        assert isinstance(made, TaskConnection)
        yield made
        await made.aclose()


@pytest.mark.parametrize(("protocol", "decode_responses"), [(2, False), (3, True)])
async def test_many_tasks_share_one_connection_and_each_hears_its_own_reply(
    redis_server: redis.Redis, protocol: int, decode_responses: bool
) -> None:
    sent: list[tuple[Any, ...]] = [
        ("ECHO", f"{each}" * (1 + each * each)) for each in range(100)
    ]  # some replies come in parts
    sent[50:50] = [("no such",), ("EVALSHA", "0" * 40, 0), ("ECHO", "\ud800"), ("ECHO", None)]
    async with connected(protocol=protocol, decode_responses=decode_responses) as ours:
        number = await ours.ask("CLIENT", "ID")
        heard = await asyncio.gather(*(ours.ask(*each) for each in sent), return_exceptions=True)
        errors = [ResponseError, NoScriptError, UnicodeEncodeError, TypeError]
        assert [type(each) for each in heard[50:54]] == errors
        assert heard[:50] + heard[54:] == [text.encode() for _, text in sent[:50] + sent[54:]]
        assert await ours.ask("EVAL", "return {1, 'a', false}", 0) == [1, b"a", None]
        assert await ours.ask("CLIENT", "ID") == number


async def test_a_connection_is_left_that_the_server_closed_or_that_leads_to_no_master(
    redis_server: redis.Redis,
) -> None:
    """Behind the address there may be another server by now."""
    async with connected() as ours:
        first = await ours.ask("CLIENT", "ID")
        redis_server.client_kill_filter(_type="normal", skipme=True)  # the loop has not seen it yet
        second = await ours.ask("CLIENT", "ID")
        redis_server.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(ReadOnlyError):
                await ours.ask("SET", "a", "b")
            assert len({first, second, await ours.ask("CLIENT", "ID")}) == 3
        finally:
            redis_server.execute_command("REPLICAOF", "NO", "ONE")


async def test_a_silent_server_fails_every_command_that_waits(redis_server: redis.Redis) -> None:
    async with connected(socket_timeout=2) as ours:
        number = await ours.ask("CLIENT", "ID")
        with hanging(redis_server):
            asked = [ours.ask("ECHO", "late") for _ in range(3)]
            seen = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in seen] == [RedisTimeoutError] * 3
        assert await ours.ask("ECHO", "new") == b"new"  # no reply that came too late is taken for it
        assert await ours.ask("CLIENT", "ID") != number


async def test_a_command_with_a_time_of_its_own_ends_alone(redis_server: redis.Redis) -> None:
    async with connected(socket_timeout=60) as ours:
        number = await ours.ask("CLIENT", "ID")
        with hanging(redis_server):
            patient = asyncio.create_task(ours.ask("ECHO", "patient"))
            with pytest.raises(RedisTimeoutError):
                await ours.ask("ECHO", "hasty", seconds=0.05)
        assert await patient == b"patient"
        assert await ours.ask("CLIENT", "ID") == number


@pytest.mark.parametrize("noted", [True, False])
async def test_a_cancellation_waits_for_the_reply(redis_server: redis.Redis, noted: bool) -> None:
    cancelled: list[BaseException] | None = [] if noted else None
    async with connected() as ours:
        await ours.ask("PING")
        with hanging(redis_server):
            task = asyncio.create_task(ours.ask("INCR", "a", cancelled=cancelled))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        if noted:
            assert await task == 1
            assert cancelled is not None
            assert [type(each) for each in cancelled] == [asyncio.CancelledError]
        else:
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await ours.ask("GET", "a") == b"1"


async def test_a_first_command_that_is_cancelled_leaves_a_whole_connection(redis_server: redis.Redis) -> None:
    async with connected() as ours:
        for turns in range(12):  # at each step of the handshake, and after it
            task = asyncio.create_task(ours.ask("ECHO", "first"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await ours.ask("ECHO", "next") == b"next"
            await ours.aclose()


async def test_a_health_check_that_is_due_finds_a_dead_connection(redis_server: redis.Redis) -> None:
    async with connected(health_check_interval=30, socket_timeout=2) as ours:
        number = await ours.ask("CLIENT", "ID")
        redis_server.config_resetstat()
        assert await ours.ask("CLIENT", "ID") == number
        assert "cmdstat_ping" not in redis_server.info("commandstats")
        silent: Any = ours._replies
        silent.heard_at -= 60
        with hanging(redis_server):
            asking = asyncio.create_task(ours.ask("CLIENT", "ID"))
            while not silent.ended:
                await asyncio.sleep(0.01)
        assert await asking != number


async def test_a_client_that_finds_its_own_way_is_used_as_it_is(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with redis.asyncio.Redis.from_url(os.environ["REDIS_URL"]) as client:
        monkeypatch.setattr(task_connection, "hiredis", None)
        theirs = connection_of(client)
        assert isinstance(theirs, TaskClient)
        assert await theirs.ask("ECHO", "a") == b"a"
        with hanging(redis_server), pytest.raises(TimeoutError):
            await theirs.ask("ECHO", "b", seconds=0.05)
    assert isinstance(connection_of(object()), TaskClient)
