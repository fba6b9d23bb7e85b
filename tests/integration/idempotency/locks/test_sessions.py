"""Locks of PostgreSQL and ZooKeeper: the end of a session is the end of a hold."""

import asyncio
import threading
from typing import Any

import pytest

from idempotency.locks import LockLost
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.test_every_server import OF_SESSIONS


@pytest.mark.parametrize(("server", "face", "kind"), OF_SESSIONS)
class TestSessions:
    def test_a_holder_that_may_not_come_in_twice(self, mutexes: Any) -> None:
        once = mutexes.make(reentrant=False, owner="both")
        first, second = mutexes.faced.actors(2)
        assert first.do(once.acquire)
        assert first.do(lambda: once.acquire(wait_seconds=0)) is False
        waiting = second.begin(once.acquire)
        mutexes.waits(once, 1)
        first.do(once.release)
        assert waiting.result(30) is True
        second.do(once.release)

    def test_a_listener_hears_how_it_ended(self, mutexes: Any) -> None:
        ends: list[tuple[str, int]] = []
        calls: Any = {
            f"on_{end}": lambda _, token, end=end: ends.append((end, token)) for end in ("lost", "released")
        }
        lock, actor = mutexes.make(**calls), mutexes.faced.actor()
        with pytest.raises(TypeError, match="no lease"):
            mutexes.make(on_expired=print)
        assert actor.do(lock.acquire)
        tokens = [actor.do(lambda: lock.token)]
        actor.do(lock.release)
        assert ends == [("released", tokens[0])]
        for _ in range(2):
            assert actor.do(lock.acquire)
        tokens.append(actor.do(lambda: lock.token))
        mutexes.lose(lock)
        until(lambda: ends[1:] == [("lost", tokens[1])])
        with pytest.raises(LockLost):
            actor.do(lock.acquire)
        for lost in (True, False):  # each acquire wants its release
            with pytest.raises(LockLost):
                actor.do(lock.release)
            assert actor.do(lambda: lock.lost) is lost
        assert len(ends) == 2
        until(lambda: "locks-sessions" not in [thread.name for thread in threading.enumerate()])


@pytest.mark.parametrize(("server", "face", "kind"), [row for row in OF_SESSIONS if "asyncio" in str(row)])
class TestSessionsOfTasks:
    def test_more_of_them_than_threads_of_the_executor_exclude_each_other(self, mutexes: Any) -> None:
        """Those who wait leave room for who releases."""
        lock = mutexes.make()
        inside: list[None] = []

        async def work() -> None:
            async with lock:
                assert inside == []
                inside.append(None)
                await asyncio.sleep(0)
                inside.clear()

        async def story() -> None:
            await asyncio.gather(*(work() for _ in range(40)))

        mutexes.faced.run(story())

    def test_cancelled_anywhere_it_is_held_or_leaves_nothing(self, mutexes: Any) -> None:
        lock, results = mutexes.make(), set[bool]()

        async def story() -> None:
            for turns in range(0, 60, 2):
                task = asyncio.create_task(lock.acquire())
                for _ in range(turns * turns):  # turns of the loop: from its first step to its last
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                results.add(task.cancelled() or task.result())
            # a task that got it ended without a release: the next caller finds that out
            async with lock:
                assert await lock.hold_count() == 1
                while await lock.waiters():  # of ZooKeeper a node may be deleted in the background
                    await asyncio.sleep(0.01)

        mutexes.faced.run(story())
        assert results == {True}
