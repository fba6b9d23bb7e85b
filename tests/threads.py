"""Run the same thing in many threads at the same instant, each with a database connection of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def at_once(*jobs: Callable[[], T]) -> list[T]:
    """Start every job at one barrier; their results in order. The first exception of a job is raised here."""
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
