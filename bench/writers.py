"""One event of an order at a time: queue with locks, lock, row lock, or version.

Events of many orders over four processes, and many writers on one row. An event reads the order's row, works for a
millisecond and writes the row, in one transaction. Two at once would lose one of the two writes, so the sum of the
rows shows a way that does not guard.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import procrastinate
from django.core.management import call_command
from django.db import connection, models, transaction

from bench import servers
from bench.harness import FORK, fork_all, options, take_turns
from bench.report import compare
from idempotency.locks import Lock
from idempotency.locks.postgres import locked

# writers and orders: hardly ever two events of one order at once, nearly always, always
PLACES = ((4, 50), (4, 4), (1, 1), (4, 1), (16, 1))
WORK_SECONDS = 0.001
SEED = 20260101
WAIT_SECONDS = 100.0
QUEUE = "procrastinate, lock= an order"

Way = Callable[[int, list[int]], float]  # of writers and events -> events a second


class Row(models.Model):
    """The throwaway table."""

    version = models.IntegerField(default=0)
    events = models.IntegerField(default=0)

    class Meta:
        app_label = "bench"
        db_table = "bench_writers"


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/writers.*.

    Raises:
        AssertionError: an event's write is missing.
    """
    given = options("writers", arguments, rounds=3, events=1000)
    servers.require_own_redis()
    seen = {}
    with servers.on_database(servers.fresh_database("bench_writers")) as url:
        call_command("migrate", verbosity=0)
        with connection.schema_editor() as editor:
            editor.create_model(Row)
        ways: dict[str, Way] = {
            QUEUE: partial(_queued, url),
            "Lock an order": partial(_direct, _under_lock),
            "SELECT … FOR UPDATE": partial(_direct, _for_update),
            "version, retried": partial(_direct, _by_version),
        }
        for writers, orders in PLACES:
            events = [order for order in range(1, orders + 1) for _ in range(given.events // orders)]
            random.Random(SEED).shuffle(events)
            turns = {title: partial(_turn, way, writers, events) for title, way in ways.items()}
            place = f"{writers} writers, {orders} orders"
            seen[place] = take_turns(f"writers, {place}", turns, rounds=given.rounds)
    note = (
        f"{given.rounds} rounds of {given.events} shuffled events. The queue takes one job at a time in each "
        "process, and also stores the events over a crash, in their order. No event was lost."
    )
    compare("writers", "Events of orders, one of an order at a time", seen, base=QUEUE, unit="events", note=note)


def _turn(way: Way, writers: int, events: list[int]) -> float:
    """Return the events a second, after a count of the writes."""
    Row.objects.all().delete()
    Row.objects.bulk_create(Row(pk=order) for order in set(events))
    connection.close()  # a forked process must not share the connection
    rate = way(writers, events)
    assert sum(Row.objects.values_list("events", flat=True)) == len(events), "an event's write is missing"
    return rate


def _direct(handle: Callable[[int], None], writers: int, events: list[int]) -> float:
    """Let each writer take its share of the events."""

    def work(number: int) -> Iterator[None]:
        connection.ensure_connection()
        yield
        for order in events[number::writers]:
            handle(order)

    return len(events) / fork_all(writers, work)


def _queued(url: str, writers: int, events: list[int]) -> float:
    """Queue each event with its order as the job's lock; let worker processes take them."""
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    done, began = FORK.Value("q", 0), FORK.Value("d", 0.0)

    @app.task(name="event", queue="bench")
    def event(order: int) -> None:
        with began.get_lock():
            began.value = began.value or time.monotonic()
        _unguarded(order)
        with done.get_lock():
            done.value += 1

    with app.open():
        for order in events:
            event.configure(lock=f"order:{order}").defer(order=order)

    async def serve() -> None:
        apart = app.with_connector(procrastinate.PsycopgConnector(conninfo=url))
        async with apart.open_async():
            await apart.run_worker_async(queues=["bench"], concurrency=1, install_signal_handlers=False)

    workers = [FORK.Process(target=lambda: asyncio.run(serve()), daemon=True) for _ in range(writers)]
    for worker in workers:
        worker.start()
    until = time.monotonic() + WAIT_SECONDS
    while done.value < len(events) and time.monotonic() < until:
        time.sleep(0.01)
    seconds = time.monotonic() - began.value
    for worker in workers:
        worker.kill()
        worker.join()
    return len(events) / seconds


def _update(order: int, row: Row, **where: int) -> int:
    time.sleep(WORK_SECONDS)
    return Row.objects.filter(pk=order, **where).update(version=row.version + 1, events=row.events + 1)


@transaction.atomic
def _unguarded(order: int) -> None:
    _update(order, Row.objects.get(pk=order))


def _under_lock(order: int) -> None:
    with Lock(f"bench-order:{order}"):
        _unguarded(order)


@transaction.atomic
def _for_update(order: int) -> None:
    (row,) = locked(Row.objects.filter(pk=order))
    _update(order, row)


def _by_version(order: int) -> None:
    """Try until no other writer came in between; at once again, as such loops do."""
    written = 0
    while not written:
        with transaction.atomic():
            row = Row.objects.get(pk=order)
            written = _update(order, row, version=row.version)
