"""A keyed POST over HTTP against the same view without a key: rates, CPU and faults.

The view is a stranger's: REST framework, one row in its own `atomic()`, no middleware. One gunicorn a set-up is up
all the time. The bare view runs twice a round: their distance is how far any figure may be off.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import psutil
import psycopg
import redis
from django.core.management import call_command

from bench import faults, orders, servers
from bench.harness import SEED, options, post, take_turns
from bench.peer_venvs import PeerUnavailableError, version_of
from bench.report import write
from bench.servers import Server
from bench.variants import KEY, VARIANTS, Variant
from shop.devserver.guardian import Guardian

CONNECTIONS = 8
SCRIPT = Path(__file__).parent / "wrk.lua"
FAULTS_AT_ONCE = 3
REPLAYED = 1  # the run of all replays of a server: the first answer stays
STORES = ("PostgreSQL", "Redis")
COLUMNS = (
    *("variant", "requests/s", "ratio to bare", "half of the rounds", "p50 ms", "p99 ms", "p99 to bare"),
    *("CPU ms a request", "of them web", *(f"of them {store}" for store in STORES)),
    *("not 2xx", "raced: twice", "killed: twice", "Redis lost: twice"),
)
# keys of this run start after those of all runs before
_runs = itertools.count(int(time.time()) & 0x0FFFFFFF)

Loads = Mapping[str, Sequence[Mapping[str, float]]]  # title -> figures of each round


def run(arguments: Sequence[str] = ()) -> None:
    """Measure and count, and write bench/results/keyed.*."""
    given = options("keyed", arguments, rounds=20, seconds=1, raced=200, killed=20, flushed=50)
    if not shutil.which("wrk"):
        raise RuntimeError("wrk is missing. Install it with: apt-get install wrk")
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    orders.prepare()
    with servers.guarded() as guardian:
        started = {variant: _server_of(variant.setup, guardian) for variant in VARIANTS}
        running = {one: server for one, server in started.items() if isinstance(server, Server)}
        ways = {one.title: partial(_load, server, one, given.seconds) for one, server in running.items()}
        # the warm round makes the answers of the replays
        loads = take_turns("keyed", ways, rounds=given.rounds, warm=1)
        befallen = _befall(running, given.raced, given.killed, given.flushed)
    rows = [[*_cells(one, loads), *befallen.get(one, [""] * 3)] for one in running]
    write(
        name="keyed",
        title="A keyed POST against the view without a key: ours and the peers'",
        columns=COLUMNS,
        rows=rows,
        bars={"": [(one.title, statistics.median(_ratios(one, loads, "rate"))) for one in running]},
        bases=[one.title for one in running if "bare" in one.path],
        note=_note(given.rounds, given.seconds)
        + "".join(f" {one.title}: {reason}." for one, reason in started.items() if isinstance(reason, str)),
    )


def _note(rounds: int, seconds: int) -> str:
    return (
        f"{rounds} rounds of {seconds} s in shuffled turns (seed {SEED}); medians, a ratio of each round's own. "
        f"gunicorn gthread {servers.WORKERS} workers x {servers.THREADS} threads, wrk with {CONNECTIONS} "
        "connections, PostgreSQL with fsync, Redis. Twice: keys with a "
        f"second row, after {faults.COPIES} copies at once, after SIGKILL of the worker behind the commit and "
        f"a retry, after FLUSHDB between answer and retry; stuck: no 2xx for {faults.RETRY_SECONDS:.0f} s. Every "
        "lock or lease that has a time holds 3 s: a longer one only delays what a retry finds. Our phased handler "
        "looks for its row when it is resumed, as its mode asks. drf-idempotency replays before the view "
        "authenticates its caller."
    )


@cache
def _server_of(setup: str, guardian: Guardian) -> Server | str:
    """Start a set-up's server once; return why a peer cannot be installed or started."""
    shared = [variant for variant in VARIANTS if variant.setup == setup]
    number = sorted({variant.setup for variant in VARIANTS}).index(setup)
    try:
        server = servers.start(shared, guardian, redis_database=number)
    except PeerUnavailableError as error:
        if shared[0].peer is None:
            raise
        print(f"keyed: {setup}: {error}", flush=True)
        return str(error)
    print(f"keyed: {setup}: up", flush=True)
    return server


def _befall(running: Mapping[Variant, Server], *counts: int) -> dict[Variant, list[str]]:
    """Try the faults on several servers at once: they mostly wait, for leases and new workers."""
    faulty: dict[Server, list[Variant]] = {}
    for variant, server in running.items():
        if variant.has_faults:
            faulty.setdefault(server, []).append(variant)
    with ThreadPoolExecutor(FAULTS_AT_ONCE) as pool:
        found = pool.map(lambda pair: faults.befall(*pair, *counts), faulty.items())
        return {variant: cells for of_server in found for variant, cells in of_server.items()}


def _cells(variant: Variant, loads: Loads) -> list[str]:
    """Return a row's cells up to the faults."""
    seen = loads[variant.title]
    ratios = _ratios(variant, loads, "rate")
    quarters = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
    rate, p50, p99 = (statistics.median(one[name] for one in seen) for name in ("rate", "p50_ms", "p99_ms"))
    requests = sum(one["requests"] for one in seen) or 1
    # the clock of CPU ticks every 10 ms, so sums are finer than rounds
    used = [sum(one[name] for one in seen) / requests * 1e3 for name in ("web", *STORES)]
    return [
        f"{variant.title} ({version_of(variant.peer)})" if variant.peer else variant.title,
        *(f"{rate:.0f}", f"{statistics.median(ratios):.2f}", f"{quarters[0]:.2f} to {quarters[2]:.2f}"),
        *(f"{p50:.1f}", f"{p99:.1f}", f"{statistics.median(_ratios(variant, loads, 'p99_ms')):.2f}"),
        *(f"{value:.2f}" for value in (sum(used), *used)),
        f"{sum(one['failed'] for one in seen):g}",
    ]


def _ratios(variant: Variant, loads: Loads, name: str) -> list[float]:
    """Return each round's own ratio to the view without a key."""
    base = loads[variant.base or variant.title]
    return [one[name] / other[name] for one, other in zip(loads[variant.title], base, strict=True)]


def _load(server: Server, variant: Variant, seconds: int) -> dict[str, float]:
    """Post over eight connections; return requests, rate, latency, failures, CPU seconds."""
    request = post(variant.path, variant.headers, variant.body.encode()).decode()
    keys = [str(REPLAYED), "replay"] if variant.replays else [str(next(_runs))]
    command = ["wrk", "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{seconds}s"]
    command += ["--latency", "--timeout", "10s", "--script", str(SCRIPT), f"http://127.0.0.1:{server.port}"]
    before = _cpu_seconds(server)
    done = subprocess.run([*command, "--", request, KEY, *keys], capture_output=True, text=True, check=True)
    used = {name: spent - before[name] for name, spent in _cpu_seconds(server).items()}
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    rate, failed = figures["requests"] / figures["seconds"], figures["refused"] + figures["broken"]
    return {**figures, **used, "rate": rate, "failed": failed}


@cache
def _stores() -> dict[str, int]:
    """Return the process ids of PostgreSQL and Redis."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        postmaster = psutil.Process(connection.info.backend_pid).ppid()
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        return dict(zip(STORES, (postmaster, int(client.info("server")["process_id"])), strict=True))


def _cpu_seconds(server: Server) -> dict[str, float]:
    """Return the CPU seconds of gunicorn and each store, ended children included."""
    used: dict[str, float] = {}
    for name, root in {"web": server.child.pid, **_stores()}.items():
        process, used[name] = psutil.Process(root), 0.0
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                used[name] += times.user + times.system + times.children_user + times.children_system
    return used
