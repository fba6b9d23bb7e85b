"""One order one event at a time: a lock, a queue that knows locks, the row's lock, or a version and a retry.

Two questions: events of many orders over some worker processes, and many writers on one row. A turn is a process
(`bench.order_worker`) on a database of its own; every way takes its turn in every round.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import redis

from bench import servers
from bench.peer_venvs import ROOT
from bench.report import write

ROUNDS = 3
EVENTS = 1000  # of a turn
WRITERS = 4
ORDERS = (50, 4)  # hardly ever two events of one order at once, and nearly always
ROW_WRITERS = (1, 4, 16)
WORK_SECONDS = 0.001  # between the read and the write of an event
POLLING_SECONDS = 5.0  # procrastinate's own; a job that only becomes free by another's end is not notified
EAGER_POLLING_SECONDS = 0.05
TURN_LIMIT_SECONDS = 150


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the same guarantee.

    Attributes:
        title: in the tables.
        way: as `bench.order_worker` knows it.
        polling: of a queue's worker, in seconds.
    """

    title: str
    way: str
    polling: float = 0.0


ROW = Way("SELECT … FOR UPDATE (`locked`)", "for update")
VERSION = Way("version and retry", "version")
LOCK = Way("Lock an order", "lock")
QUEUE = Way("procrastinate, lock= an order", "queue", POLLING_SECONDS)
QUEUE_EAGER = Way(f"the same, polling every {EAGER_POLLING_SECONDS} s", "queue", EAGER_POLLING_SECONDS)
WAYS = (QUEUE, QUEUE_EAGER, LOCK, ROW, VERSION)
ROW_WAYS = (ROW, VERSION, LOCK)

Seen = dict[tuple[int, str], list[dict[str, Any]]]


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/lock_or_queue.* and row_writers.*."""
    parser = argparse.ArgumentParser(prog="python -m bench lock_or_queue")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=EVENTS, help="of each turn")
    given = parser.parse_args(arguments)
    servers.require_own_redis()
    _orders(given)
    _one_row(given)


def _orders(given: argparse.Namespace) -> None:
    seen: Seen = defaultdict(list)
    for number in range(given.rounds):
        for orders in ORDERS:
            for way in _in_turn(WAYS, number):
                seen[orders, way.title].append(_turn(way, WRITERS, orders, given.events))
        print(f"lock_or_queue: orders: round {number + 1}/{given.rounds}", flush=True)
    rows = []
    for orders in ORDERS:
        for way in WAYS:
            figures = seen[orders, way.title]
            put = f"{_median(figures, 'put_rate'):.0f}" if "put_rate" in figures[0] else ""
            ratio = _ratio(figures, seen[orders, QUEUE.title])
            rows.append([str(orders), way.title, *_cells(figures, ratio), put])
    write(
        name="lock_or_queue",
        title=f"Events of orders, one of an order at a time, {WRITERS} processes",
        columns=(
            "orders",
            "way",
            "events/s",
            "ratio to the queue",
            "tries in vain",
            "lost",
            "put into the queue/s",
        ),
        rows=rows,
        bars={
            f"{orders} orders": [
                (way.title, _ratio(seen[orders, way.title], seen[orders, QUEUE.title])) for way in WAYS
            ]
            for orders in ORDERS
        },
        bases=(QUEUE.title,),
        x_label="events a second, ratio to procrastinate with its own polling",
        note=(
            f"{given.rounds} rounds of {given.events} events, shuffled; medians, the ratio of each round's own "
            f"ratios. procrastinate {version('procrastinate')}, one job at a time in each process; its rate is "
            "from the first event's begin to the last one's end, without the putting in. The queue also keeps "
            "the events over a crash and in their order, which the others leave to whoever calls them. An event "
            f"reads the row, works {WORK_SECONDS * 1e3:.0f} ms and writes it, in one transaction. Tries in vain: "
            "of an event. Lost: events whose write is missing from the rows at the end, over all rounds."
        ),
    )


def _one_row(given: argparse.Namespace) -> None:
    seen: Seen = defaultdict(list)
    for number in range(given.rounds):
        for writers in ROW_WRITERS:
            for way in _in_turn(ROW_WAYS, number):
                seen[writers, way.title].append(_turn(way, writers, 1, given.events))
        print(f"lock_or_queue: one row: round {number + 1}/{given.rounds}", flush=True)
    rows, bars = [], {}
    for writers in ROW_WRITERS:
        group = bars[f"{writers} writer(s)"] = []
        for way in ROW_WAYS:
            figures = seen[writers, way.title]
            ratio = _ratio(figures, seen[writers, ROW.title])
            rows.append([str(writers), way.title, *_cells(figures, ratio)])
            group.append((way.title, ratio))
    write(
        name="row_writers",
        title="Many writers, one row",
        columns=("writers", "way", "events/s", "ratio to FOR UPDATE", "tries in vain", "lost"),
        rows=rows,
        bars=bars,
        bases=(ROW.title,),
        x_label="events a second, ratio to SELECT … FOR UPDATE",
        note=(
            f"{given.rounds} rounds of {given.events} events, medians; a writer is a process. An event reads the "
            f"row, works {WORK_SECONDS * 1e3:.0f} ms and writes it, in one transaction; a version that has "
            "changed means all of it again, at once. Tries in vain: of an event."
        ),
    )


def _turn(way: Way, writers: int, orders: int, events: int) -> dict[str, Any]:
    """One turn on a fresh database and an empty Redis."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.flushall()
    turn = {"way": way.way, "writers": writers, "orders": orders, "events": events, "work": WORK_SECONDS}
    environment = {**os.environ, "DATABASE_URL": servers.fresh_database("bench_lock_or_queue")}
    done = subprocess.run(
        [sys.executable, "-m", "bench.order_worker", json.dumps({**turn, "polling": way.polling})],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TURN_LIMIT_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{way.title} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    print(f"lock_or_queue: {way.title}: {writers} writers, {orders} orders: {shown}", flush=True)
    return figures


def _cells(figures: Sequence[dict[str, Any]], ratio: float) -> list[str]:
    return [
        f"{_median(figures, 'rate'):.0f}",
        f"{ratio:.2f}",
        f"{_median(figures, 'retries'):.2f}",
        str(sum(one["missing"] for one in figures)),
    ]


def _in_turn(ways: Sequence[Way], number: int) -> Sequence[Way]:
    return ways[::-1] if number % 2 else ways


def _median(figures: Sequence[dict[str, Any]], name: str) -> float:
    return statistics.median(one.get(name, math.nan) for one in figures)


def _ratio(figures: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> float:
    return statistics.median(one["rate"] / other["rate"] for one, other in zip(figures, base, strict=True))
