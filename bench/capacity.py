"""What one machine carries: orders a second and their latency, by web processes and callers, up to saturation.

Orders have a fresh key each; beside them the replay of an answer and the reading of an order. Web processes are as
in deploy/: one a port, four threads each, and callers take them in turn: fewer callers than processes leave some
idle. Everything shares the machine, the database and the callers too; the CPU that each part takes is told, so
that one sees which part is full.
"""

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import psutil
from django.core.management import call_command

from bench import flame, load, servers
from bench.crowd import BUYERS, FRESH, READ, REPLAY, THREADS_MOST, Crowd
from bench.report import Panel, Table, write_lines
from shop.models import Order

ROUNDS = 3
SECONDS = 1
PROCESSES = (1, 2, 3, 4)
CALLERS = (1, 2, 4, 8, 16, 32)
WARM_SECONDS = 1
FULL = 0.95  # of the most that was reached: callers beyond this only wait longer
KINDS = {FRESH: "orders, a fresh key each", REPLAY: "replays of an answer", READ: "reads of an order"}

Place = tuple[str, int, int]  # what is called, web processes, callers


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one run of wrk saw, or the median of some.

    Attributes:
        rate: answers a second.
        p50_ms: half of the answers took longer.
        p95_ms: a twentieth did.
        p99_ms: a hundredth did.
        busy: share of the machine's CPU time that was not idle, 0 to 1.
        web: cores that the web processes used.
        postgresql: those of PostgreSQL.
        redis: those of Redis.
        callers: those of wrk.
    """

    rate: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    busy: float
    web: float
    postgresql: float
    redis: float
    callers: float


def run(options: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/capacity.* and flame.*.

    Raises:
        AssertionError: an order that was answered is not there, or one that nobody placed is.
    """
    parser = argparse.ArgumentParser(prog="python -m bench capacity")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of orders; replays and reads have one")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each point in each round")
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES)
    parser.add_argument("--callers", type=int, nargs="+", default=CALLERS)
    parser.add_argument("--flame-seconds", type=int, default=flame.SECONDS, help="of each of its two recordings")
    given = parser.parse_args(options)
    if any(callers > THREADS_MOST and callers % THREADS_MOST for callers in given.callers):
        parser.error(f"above {THREADS_MOST} callers, wrk wants a multiple of it")
    load.wrk_binary()
    servers.require_own_redis()
    load_before = os.getloadavg()[0]
    with servers.on_database(servers.fresh_database("bench_capacity")) as database, servers.guarded() as guardian:
        call_command("migrate", verbosity=0)
        ports = [
            servers.start_shop(guardian, {"DATABASE_URL": database}, name=f"capacity-{number}", workers=1)
            for number in range(max(given.processes))
        ]
        masters = [_master(port) for port in ports]
        crowd = Crowd(ports)
        points = _measure(crowd, [master.pid for master in masters], given)
        placed = Order.objects.count()
        assert crowd.heard <= placed <= crowd.heard + crowd.unheard_most, (crowd.heard, placed)
        _report(points, given, load_before)
        (worker,) = masters[0].children()
        flame.run(crowd, pid=worker.pid, seconds=given.flame_seconds)


def _master(port: int) -> psutil.Process:
    """The gunicorn at this port, which we have started."""
    return next(child for child in psutil.Process().children() if f"127.0.0.1:{port}" in child.cmdline())


def _measure(crowd: Crowd, web: Sequence[int], given: argparse.Namespace) -> dict[Place, Point]:
    postgresql, redis = load.server_pids()
    parts = {"web": web, "postgresql": [postgresql], "redis": [redis]}
    seen: dict[Place, list[Point]] = defaultdict(list)
    for kind in KINDS:  # every thread connects to its stores
        crowd.call(kind, processes=len(web), callers=max(given.callers), seconds=WARM_SECONDS)
    for number in range(given.rounds):
        places = [
            (kind, processes, callers)
            for processes in given.processes
            for callers in given.callers
            # a shop is sized by its orders, so they have all the rounds
            for kind in (KINDS if number == 0 else (FRESH,))
        ]
        for place in reversed(places) if number % 2 else places:
            seen[place].append(_point(crowd, parts, place, given.seconds))
        print(f"capacity: round {number + 1}/{given.rounds}", flush=True)
    return {place: _median(points) for place, points in seen.items()}


def _point(crowd: Crowd, parts: Mapping[str, Sequence[int]], place: Place, seconds: int) -> Point:
    kind, processes, callers = place
    used, ours = {part: load.cpu_seconds(*roots) for part, roots in parts.items()}, os.times()
    psutil.cpu_times_percent()  # the next call tells what was since this one
    heard = crowd.call(kind, processes=processes, callers=callers, seconds=seconds)
    machine = psutil.cpu_times_percent()
    spent = {part: load.cpu_used(used[part], load.cpu_seconds(*roots)) for part, roots in parts.items()}
    now = os.times()
    spent["callers"] = now.children_user + now.children_system - ours.children_user - ours.children_system
    cores = {part: each / (now.elapsed - ours.elapsed) for part, each in spent.items()}
    idle = machine.idle + getattr(machine, "iowait", 0.0)
    return Point(**heard, busy=1 - idle / 100, **cores)


def _median(points: Sequence[Point]) -> Point:
    return Point(
        **{each.name: statistics.median(getattr(point, each.name) for point in points) for each in fields(Point)}
    )


def _report(points: Mapping[Place, Point], given: argparse.Namespace, load_before: float) -> None:
    write_lines(
        name="capacity",
        title="What one machine carries",
        tables=[_at_saturation(points, given), *(_all(points, kind) for kind in KINDS)],
        panels=[_throughput(points, given), _latency(points, given)],
        note=(
            f"The fewest callers with {FULL:.0%} of the most orders a second, and the most replays and reads. "
            f"{given.rounds} rounds of {given.seconds} s for orders, in alternating order, medians; one for the "
            f"others. A web process is a gunicorn with {servers.THREADS} threads and a port of its own; wrk, "
            "PostgreSQL with fsync and Redis share the machine. Each caller waits for its answer before it calls "
            f"again. {BUYERS} buyers, a product each. Load average of the machine before: {load_before:.1f}."
        ),
    )


def _full_at(points: Mapping[Place, Point], processes: int, given: argparse.Namespace) -> int:
    """From how many callers on orders a second grow no more."""
    rates = {callers: points[FRESH, processes, callers].rate for callers in given.callers}
    return min(callers for callers, rate in rates.items() if rate >= FULL * max(rates.values()))


def _at_saturation(points: Mapping[Place, Point], given: argparse.Namespace) -> Table:
    def most(kind: str, processes: int) -> float:
        return max(points[kind, processes, callers].rate for callers in given.callers)

    rows = []
    for processes in given.processes:
        callers = _full_at(points, processes, given)
        point = points[FRESH, processes, callers]
        rows.append(
            [
                str(processes),
                f"{point.rate:.0f}",
                f"{most(FRESH, processes) / most(FRESH, given.processes[0]):.2f}",
                str(callers),
                *_shown(point)[1:],
                *(f"{most(kind, processes):.0f}" for kind in (REPLAY, READ)),
            ]
        )
    ratio = f"most, against {given.processes[0]}"
    columns = ("web processes", "orders/s", ratio, "callers", *_POINT[1:], "replays/s", "reads/s")
    return Table(columns=columns, rows=rows)


_POINT = ("a second", "p50 ms", "p95 ms", "p99 ms", "CPU busy", "web, cores", "PostgreSQL", "Redis", "wrk")


def _shown(point: Point) -> list[str]:
    """The cells under `_POINT`."""
    return [
        f"{point.rate:.0f}",
        *(f"{milliseconds:.1f}" for milliseconds in (point.p50_ms, point.p95_ms, point.p99_ms)),
        f"{point.busy:.0%}",
        *(f"{cores:.2f}" for cores in (point.web, point.postgresql, point.redis, point.callers)),
    ]


def _all(points: Mapping[Place, Point], kind: str) -> Table:
    found = {place: point for place, point in sorted(points.items()) if place[0] == kind}
    return Table(
        title=KINDS[kind].capitalize(),
        columns=("web processes", "callers", *_POINT),
        rows=[[str(processes), str(callers), *_shown(point)] for (_, processes, callers), point in found.items()],
    )


def _throughput(points: Mapping[Place, Point], given: argparse.Namespace) -> list[Panel]:
    return [
        Panel(
            title=title,
            x_label="callers",
            y_label="a second",
            lines=_lines(points, given, kind, "rate"),
            log_x=True,
        )
        for kind, title in KINDS.items()
    ]


def _latency(points: Mapping[Place, Point], given: argparse.Namespace) -> list[Panel]:
    return [
        Panel(
            title=title,
            x_label="callers",
            y_label="ms: p50, and p99 with dashes",
            lines=_lines(points, given, kind, "p50_ms"),
            dashed=_lines(points, given, kind, "p99_ms"),
            log_x=True,
            log_y=True,
        )
        for kind, title in KINDS.items()
    ]


def _lines(
    points: Mapping[Place, Point], given: argparse.Namespace, kind: str, what: str
) -> dict[str, list[tuple[float, float]]]:
    """One for each number of web processes, over the callers."""
    return {
        f"{processes} web process{'es' if processes > 1 else ''}": [
            (callers, getattr(points[kind, processes, callers], what)) for callers in given.callers
        ]
        for processes in given.processes
    }
