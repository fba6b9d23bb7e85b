"""Cancellations at any moment, and threads beside the loop."""

import asyncio
import threading
from typing import Any

import anyio
import pytest

from idempotency.locks import RateExceeded, aio
from idempotency.redis.fastpath import Script
from tests.integration.idempotency.locks.actors import a_loop, until
from tests.integration.idempotency.locks.conftest import Bench


def held_up(patched: pytest.MonkeyPatch, when: str) -> threading.Event:
    """Hold the first command up, `before` it is sent or `after` its reply, until cancelled."""
    once, asked = Script.run_async, threading.Event()

    async def slow(script: Script, *arguments: Any) -> Any:
        first = not asked.is_set() and when != "waiting"
        if when == "before":
            asked.set()
            await asyncio.sleep(30 if first else 0)
        answer = await once(script, *arguments)
        asked.set()
        await asyncio.sleep(30 if first else 0)
        return answer

    patched.setattr(Script, "run_async", slow)
    return asked


@pytest.mark.parametrize(("what", "when"), [("acquire", "after"), ("release", "before")])
def test_a_cancelled_acquire_is_given_back_and_a_cancelled_release_is_done(
    desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch, what: str, when: str
) -> None:
    lock, actor = desk_of_tasks.make("Lock"), desk_of_tasks.actor()
    if what == "release":
        assert actor.do(lock.acquire)
    asked = held_up(monkeypatch, when)
    doing = actor.begin(getattr(lock, what))
    assert asked.wait(30)
    actor.cancel()
    with pytest.raises(asyncio.CancelledError):
        doing.result(30)
    assert actor.do(lambda: lock.held) is False
    assert desk_of_tasks.actor().do(lambda: lock.acquire(wait_seconds=0)) is True


def test_a_release_is_done_though_anyio_cancels_it_at_each_turn_of_the_loop(
    desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, once, interrupted = desk_of_tasks.make("Lock"), Script.run_async, 0

    async def slow(script: Script, *arguments: Any) -> Any:
        nonlocal interrupted
        try:
            await asyncio.sleep(0.01 if interrupted < 10 else 0)  # it has to connect again, say
        except asyncio.CancelledError:
            interrupted += 1
            raise
        return await once(script, *arguments)

    async def story() -> bool:
        with anyio.CancelScope() as scope:
            async with lock:
                monkeypatch.setattr(Script, "run_async", slow)
                scope.cancel()
                await asyncio.sleep(30)
        return lock.held or not await asyncio.create_task(lock.acquire(wait_seconds=0))

    assert desk_of_tasks.run(story()) is False
    assert interrupted == 1


@pytest.mark.parametrize("when", ["before", "after", "waiting"])
@pytest.mark.parametrize("kind", ["RateLimiter", "TokenBucket"])
def test_a_cancelled_wait_for_a_rate_leaves_its_time_to_others(
    desk_of_tasks: Bench, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    limiter, actor = desk_of_tasks.make(kind, permits=2, interval_seconds=600), desk_of_tasks.actor()
    actor.do(lambda: limiter.acquire(2))
    with monkeypatch.context() as patched:
        asked = held_up(patched, when)
        waiting = actor.begin(lambda: limiter.acquire(2, wait_seconds=None))
        assert asked.wait(30)
        until(lambda: limiter._waits or when != "waiting")
        actor.cancel()
        with pytest.raises(asyncio.CancelledError):
            waiting.result(30)
    with pytest.raises(RateExceeded) as refused:
        actor.do(lambda: limiter.acquire(2))
    assert 570 < refused.value.retry_after_seconds <= 600


def test_a_lock_of_two_loops_is_asked_by_each_at_its_own_hub(desk_of_tasks: Bench) -> None:
    """Also where both find out at the same moment that they have none yet."""

    class Shared(aio.Lock):
        @property
        def _cached(self) -> Any:
            return hubs[-1] if hubs else None

        @_cached.setter
        def _cached(self, hub: Any) -> None:
            hubs.append(hub)
            if len(hubs) == 1:
                asyncio.run_coroutine_threadsafe(ask(), other).result(30)

    async def ask() -> bool:
        return lock.hub().serves_here()

    hubs: list[Any] = []
    lock = Shared("thing", client=desk_of_tasks.client)
    with a_loop() as other:
        assert desk_of_tasks.run(ask()) is True
        assert len(hubs) == 2
