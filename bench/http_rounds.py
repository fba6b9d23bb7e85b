"""Requests a second of `@idempotent`, of the bare view and of the peers, over HTTP.

One gunicorn a variant is up all the time (idle ones cost nothing). In every round every variant takes its turn, in
an order that alternates, so that a slow moment of the machine meets all of them; the figure is the median of the
rounds' ratios to the bare view of the same round. The bare view runs twice a round: how far its second run lies
from the first is how far any figure may be off.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench import load, servers
from bench.load import Load
from bench.peer_venvs import PeerUnavailableError, version_of
from bench.report import write
from bench.servers import Server
from bench.variants import BARE, BARE_ASGI, BARE_DRF, BARE_THIN, CONTROL, OURS, OURS_THIN, PEERS, Variant

ROUNDS = 8
ROUND_SECONDS = 2
# the control stands farthest from the bare view, so that it shows the most that a round can drift
VARIANTS = (BARE, *OURS, BARE_THIN, *OURS_THIN, BARE_DRF, BARE_ASGI, *PEERS, CONTROL)
COLUMNS = ("variant", "requests/s", "ratio to bare", "p50 ms", "p99 ms", "CPU ms/request", "not 2xx")


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/http_rounds.md and .png."""
    parser = argparse.ArgumentParser(prog="python -m bench http_rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=ROUND_SECONDS, help="of each variant in each round")
    given = parser.parse_args(arguments)
    load.wrk_binary()
    servers.require_own_redis()
    with servers.guarded() as guardian:
        running: dict[str, Server] = {}
        missing: dict[str, str] = {}
        for number, variant in enumerate(VARIANTS):
            if variant is CONTROL:
                running[variant.title] = running[BARE.title]
                continue
            try:
                running[variant.title] = servers.start(variant, guardian, redis_database=number)
            except PeerUnavailableError as error:
                if variant.peer is None:
                    raise
                missing[variant.title] = str(error)
            print(f"http_rounds: {variant.title}: {missing.get(variant.title, 'up')}", flush=True)
        loads = _measure(running, rounds=given.rounds, seconds=given.seconds)
    rows = [_row(variant, loads, missing) for variant in VARIANTS]
    write(
        name="http_rounds",
        title="Over HTTP: a keyed POST of one row, ours and the peers', against the bare view",
        columns=COLUMNS,
        rows=rows,
        bars={"": [(title, _ratio(_variant(title), loads)) for title in loads]},
        note=_note(given.rounds, given.seconds),
    )


def _measure(running: Mapping[str, Server], *, rounds: int, seconds: int) -> dict[str, list[Load]]:
    present = [variant for variant in VARIANTS if variant.title in running]
    loads: dict[str, list[Load]] = defaultdict(list)
    for number in range(-1, rounds):
        for variant in present if number % 2 else reversed(present):
            server = running[variant.title]
            # the first round only warms up, and makes the answers that are replayed
            length = seconds if number >= 0 else 1
            measured = load.run(server, variant.path, seconds=length, replays=variant.replays)
            if number >= 0:
                loads[variant.title].append(measured)
        print(f"http_rounds: round {number + 1}/{rounds}", flush=True)
    return {variant.title: loads[variant.title] for variant in present}


def _variant(title: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.title == title)


def _ratio(variant: Variant, loads: Mapping[str, Sequence[Load]]) -> float:
    """Median of the rounds' ratios to the variant's own bare view, which is itself measured against `BARE`.

    Not a number where that bare view could not be started.
    """
    baseline = BARE.title if variant.is_bare else variant.baseline
    if baseline not in loads:
        return math.nan
    pairs = zip(loads[variant.title], loads[baseline], strict=True)
    return statistics.median(one.rate / bare.rate for one, bare in pairs)


def _row(variant: Variant, loads: Mapping[str, Sequence[Load]], missing: Mapping[str, str]) -> list[str]:
    title = variant.title
    if variant.peer is not None and not variant.is_bare and title not in missing:
        title += f" ({version_of(variant.peer)})"
    if variant.baseline != BARE.title:
        title += f", against: {variant.baseline}"
    if variant.title in missing:
        return [title, missing[variant.title], *[""] * (len(COLUMNS) - 2)]
    measured = loads[variant.title]

    def median(name: str) -> float:
        return statistics.median(getattr(one, name) for one in measured)

    return [
        title,
        f"{median('rate'):.0f}",
        f"{_ratio(variant, loads):.3f}",
        f"{median('p50_ms'):.1f}",
        f"{median('p99_ms'):.1f}",
        f"{median('cpu_ms'):.2f}",
        str(sum(one.failed for one in measured)),
    ]


def _note(rounds: int, seconds: int) -> str:
    return (
        f"{rounds} rounds of {seconds} s, order alternating; medians, the ratio of each round's own ratios. "
        f"gunicorn gthread {servers.WORKERS} workers x {servers.THREADS} threads (ASGI: {servers.WORKERS} uvicorn "
        f"workers), wrk with {load.CONNECTIONS} connections, PostgreSQL with fsync, Redis. Every variant has a "
        "server, a database and a Redis database of its own. CPU: gunicorn, PostgreSQL and Redis together."
    )
