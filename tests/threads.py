"""Run work in many threads at the same instant, or in a worker's thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections
from procrastinate.contrib.django import app

from tests.emptying import rows

T = TypeVar("T")


def at_once(*jobs: Callable[[], T]) -> list[T]:
    """Start every job at one barrier; return their results, or raise the first exception."""
    barrier = threading.Barrier(len(jobs), timeout=30)
    results: list[T | None] = [None] * len(jobs)
    failures: list[BaseException] = []

    def work(index: int, job: Callable[[], T]) -> None:
        try:
            connections["default"].ensure_connection()
            barrier.wait()
            results[index] = job()
        except BaseException as failure:
            failures.append(failure)
            barrier.abort()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(index, job)) for index, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results  # type: ignore[return-value]


def in_background(job: Callable[[], T]) -> "Future[T]":
    """Run it in a thread of its own, with database connections of its own."""

    def work() -> T:
        try:
            return job()
        finally:
            connections.close_all()

    beside = ThreadPoolExecutor(1)
    try:
        return beside.submit(work)
    finally:
        beside.shutdown(wait=False)


def waiting_for_locks() -> int:
    """How many sessions wait for a lock."""
    ((found,),) = rows("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
    return int(found)


def as_a_job(act: Callable[[], None]) -> None:
    """Run it in a thread of a worker, whose queue has connections of its own."""

    def work() -> None:
        try:
            act()
        finally:
            connections.close_all()

    async def run(worker: Any) -> None:
        async with worker.open_async():
            await sync_to_async(work, thread_sensitive=False)()

    with app.replace_connector(app.connector.get_worker_connector()) as worker:
        asyncio.run(run(worker))
