"""One turn of "lock or queue" in a process of its own: writers handle events, those of one order one at a time.

`python -m bench.order_worker '{"way": "lock", "writers": 4, …}'` with DATABASE_URL naming a throwaway database and
REDIS_URL set; the last line that it prints is the figures as JSON.

An event reads the order's row, works for a while and writes the row back, in one transaction. Two at once would
lose one of the two, so what is missing from the rows at the end is what a way did not guard.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")

import django

django.setup()

import redis
from django.db import connection, models, transaction

from idempotency.locks import Lock
from idempotency.locks.postgres import locked

SEED = 20260101
WAIT_SECONDS = 100.0
_fork = multiprocessing.get_context("fork")


class Order(models.Model):
    """The throwaway table."""

    version = models.IntegerField()
    events = models.IntegerField()

    class Meta:
        app_label = "bench"
        db_table = "bench_lock_or_queue"


class Clock:
    """How many events have begun and ended, and when the first and the last; shared by all processes."""

    def __init__(self) -> None:
        self._numbers = _fork.Array("q", 3)
        self._times = _fork.Array("d", 2)

    def begin(self) -> int:
        """The event's number."""
        with self._numbers.get_lock():
            number: int = self._numbers[0]
            self._numbers[0] += 1
            if number == 0:
                self._times[0] = time.monotonic()
            return number

    def end(self, *, retries: int) -> None:
        with self._numbers.get_lock():
            self._numbers[1] += 1
            self._numbers[2] += retries
            self._times[1] = time.monotonic()

    @property
    def ended(self) -> int:
        ended: int = self._numbers[1]
        return ended

    @property
    def retries(self) -> int:
        retries: int = self._numbers[2]
        return retries

    @property
    def seconds(self) -> float:
        seconds: float = self._times[1] - self._times[0]
        return seconds


clock = Clock()
work_seconds = 0.0


def _unguarded(order: int) -> int:
    with transaction.atomic():
        row = Order.objects.get(pk=order)
        time.sleep(work_seconds)
        Order.objects.filter(pk=order).update(events=row.events + 1)
    return 0


def _under_lock(client: Any) -> Callable[[int], int]:
    def handle(order: int) -> int:
        with Lock(f"bench-order:{order}", client=client):
            return _unguarded(order)

    return handle


def _for_update(order: int) -> int:
    with transaction.atomic():
        (row,) = locked(Order.objects.filter(pk=order))
        time.sleep(work_seconds)
        Order.objects.filter(pk=order).update(events=row.events + 1)
    return 0


def _by_version(order: int) -> int:
    """Try until nobody else wrote in between; at once again, as such loops do."""
    retries = 0
    while True:
        with transaction.atomic():
            row = Order.objects.get(pk=order)
            time.sleep(work_seconds)
            mine = Order.objects.filter(pk=order, version=row.version)
            if mine.update(version=row.version + 1, events=row.events + 1):
                return retries
        retries += 1


def _client() -> Any:
    return redis.Redis.from_url(os.environ["REDIS_URL"])


WAYS: dict[str, Callable[[], Callable[[int], int]]] = {
    "lock": lambda: _under_lock(_client()),
    "for update": lambda: _for_update,
    "version": lambda: _by_version,
}


def write_directly(way: str, writers: int, events: list[int]) -> None:
    """Writers take event after event from one list."""
    ready = _fork.Barrier(writers)

    def work() -> None:
        handle = WAYS[way]()
        connection.ensure_connection()
        ready.wait()
        while (number := clock.begin()) < len(events):
            clock.end(retries=handle(events[number]))

    connection.close()
    started = [_fork.Process(target=work) for _ in range(writers)]
    for one in started:
        one.start()
    for one in started:
        one.join()
        if one.exitcode:
            raise RuntimeError(f"a writer ended with {one.exitcode}")


def write_queued(writers: int, events: list[int], *, polling_seconds: float) -> float:
    """Each event is a job with the order as its `lock`; a worker process takes one job at a time.

    Returns:
        Seconds that it took to put the jobs into the queue.
    """
    import procrastinate

    url = os.environ["DATABASE_URL"]
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))

    @app.task(name="event")
    def event(order: int) -> None:
        clock.begin()
        clock.end(retries=_unguarded(order))

    with app.open():
        app.schema_manager.apply_schema()
        began = time.monotonic()
        for order in events:
            event.configure(lock=f"order:{order}").defer(order=order)
        seconds = time.monotonic() - began

    async def serve() -> None:
        apart = app.with_connector(procrastinate.PsycopgConnector(conninfo=url))
        async with apart.open_async():
            await apart.run_worker_async(
                concurrency=1, fetch_job_polling_interval=polling_seconds, install_signal_handlers=False
            )

    connection.close()
    started = [_fork.Process(target=lambda: asyncio.run(serve()), daemon=True) for _ in range(writers)]
    for one in started:
        one.start()
    until = time.monotonic() + WAIT_SECONDS
    while clock.ended < len(events) and time.monotonic() < until:
        time.sleep(0.01)
    for one in started:
        one.kill()
        one.join()
    return seconds


def main(text: str) -> None:
    """Make the table, run the turn, print its figures."""
    global work_seconds  # noqa: PLW0603  the forked writers read it
    turn = json.loads(text)
    work_seconds = turn["work"]
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    orders = range(1, turn["orders"] + 1)
    Order.objects.bulk_create(Order(pk=order, version=0, events=0) for order in orders)
    events = [order for order in orders for _ in range(turn["events"] // turn["orders"])]
    random.Random(SEED).shuffle(events)
    figures: dict[str, Any] = {}
    if turn["way"] == "queue":
        seconds = write_queued(turn["writers"], events, polling_seconds=turn["polling"])
        figures["put_rate"] = len(events) / seconds
    else:
        write_directly(turn["way"], turn["writers"], events)
    written = sum(Order.objects.values_list("events", flat=True))
    figures |= {
        "rate": clock.ended / clock.seconds,
        "retries": clock.retries / len(events),
        "missing": len(events) - written,
    }
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
