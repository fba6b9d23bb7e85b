"""A keyed POST of one row over HTTP, ours and the peers': requests a second, and rows after three faults.

One gunicorn a variant is up all the time, on a database and a Redis database of its own. The bare view runs twice
a round: the distance of its two figures is how far any figure may be off. The faults, each on keys of its own:
copies of a request at the same moment, a worker killed after the business commit, Redis emptied before the retry.
"""

import http.client
import itertools
import json
import os
import shutil
import statistics
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import psycopg
import redis

from bench import servers
from bench.harness import options, ratio, take_turns
from bench.peer_venvs import PeerUnavailableError, version_of
from bench.report import write
from bench.servers import Server
from bench.variants import BARE, CONTROL, OURS, PEERS, Variant

CONNECTIONS = 8
SCRIPT = Path(__file__).parent / "wrk.lua"
COPIES = 4
RETRY_SECONDS = 10.0
PAUSE_SECONDS = 0.25
RETRIERS = 10
BROKEN = 0
# the control runs farthest from the bare view, so that it shows the most that a round can drift
VARIANTS = (BARE, *OURS, *PEERS, CONTROL)
# replays repeat the fresh variants; the bare view shows that the faults happen
FAULTED = (BARE, *(variant for variant in OURS if not variant.replays), *PEERS)
# keys of this run start after those of all runs before
_runs = itertools.count(int(time.time()) & 0x0FFFFFFF)


def run(arguments: Sequence[str] = ()) -> None:
    """Measure and count, and write bench/results/peers.* and peer_faults.md."""
    given = options("peers", arguments, rounds=8, seconds=2, raced=500, keys=50)
    if not shutil.which("wrk"):
        raise RuntimeError("wrk is missing. Install it with: apt-get install wrk")
    servers.require_own_redis()
    with servers.guarded() as guardian:
        running: dict[str, Server] = {}
        missing: dict[str, str] = {}
        for number, variant in enumerate(VARIANTS[:-1]):
            try:
                running[variant.title] = servers.start(variant, guardian, redis_database=number)
            except PeerUnavailableError as error:
                if variant.peer is None:
                    raise
                missing[variant.title] = str(error)
            print(f"peers: {variant.title}: {missing.get(variant.title, 'up')}", flush=True)
        running[CONTROL.title] = running[BARE.title]
        _rates(running, missing, given.rounds, given.seconds)
        _faults(running, missing, given.raced, given.keys)


def _named(variant: Variant) -> str:
    return f"{variant.title} ({version_of(variant.peer)})" if variant.peer else variant.title


def _rates(running: Mapping[str, Server], missing: Mapping[str, str], rounds: int, seconds: int) -> None:
    present = [variant for variant in VARIANTS if variant.title in running]
    ways = {variant.title: partial(_load, running[variant.title], variant, seconds) for variant in present}
    loads = take_turns("peers", ways, rounds=rounds, warm=1)  # the warm round makes the answers of the replays
    columns = ("variant", "requests/s", "ratio to bare", "p50 ms", "p99 ms", "CPU ms/request", "not 2xx")
    rows, bars = [[title, reason, *[""] * 5] for title, reason in missing.items()], []
    for variant in present:
        seen = loads[variant.title]
        value = ratio([one["rate"] for one in seen], [one["rate"] for one in loads[BARE.title]])
        rate, p50, p99, cpu = (
            statistics.median(one[name] for one in seen) for name in ("rate", "p50_ms", "p99_ms", "cpu_ms")
        )
        figures = [f"{rate:.0f}", f"{value:.3f}", f"{p50:.1f}", f"{p99:.1f}", f"{cpu:.2f}"]
        rows.append([_named(variant), *figures, f"{sum(one['failed'] for one in seen):g}"])
        bars.append((variant.title, value))
    write(
        name="peers",
        title="Over HTTP: a keyed POST of one row, ours and the peers', against the bare view",
        columns=columns,
        rows=rows,
        bars={"": bars},
        note=(
            f"{rounds} rounds of {seconds} s in turns; medians. gunicorn gthread {servers.WORKERS} workers x "
            f"{servers.THREADS} threads, wrk with {CONNECTIONS} connections, PostgreSQL with fsync, Redis. CPU: "
            "gunicorn, PostgreSQL and Redis together."
        ),
    )


def _load(server: Server, variant: Variant, seconds: int) -> dict[str, float]:
    """Post over eight connections for some seconds; return rate, latency, CPU a request and failures."""
    host = f"127.0.0.1:{server.port}"
    # one key for all replays of a server: the first answer stays
    arguments = [host, variant.path, *(("1", "replay") if variant.replays else (str(next(_runs)),))]
    command = ["wrk", "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{seconds}s"]
    command += ["--latency", "--timeout", "10s", "--script", str(SCRIPT), f"http://{host}", "--", *arguments]
    before = _cpu_seconds(server)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    used = sum(spent - before.get(process, 0.0) for process, spent in _cpu_seconds(server).items())
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        **figures,
        "rate": figures["requests"] / figures["seconds"],
        "cpu_ms": used / max(figures["requests"], 1) * 1e3,
        "failed": figures["refused"] + figures["broken"],
    }


def _cpu_seconds(server: Server) -> dict[tuple[int, float], float]:
    """Return (pid, start) -> CPU seconds so far, of gunicorn, PostgreSQL and Redis with all their children."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        postmaster = psutil.Process(connection.info.backend_pid).ppid()
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        roots = (server.child.pid, postmaster, int(client.info("server")["process_id"]))
    used = {}
    for root in map(psutil.Process, roots):
        for process in (root, *root.children(recursive=True)):
            try:
                times = process.cpu_times()
                used[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
    return used


def _faults(running: Mapping[str, Server], missing: Mapping[str, str], raced: int, keys: int) -> None:
    columns = ["variant", "raced: keys with a second row", "raced: keys without a row", "killed: workers killed"]
    columns += ["killed: second rows", "killed: stuck", "Redis lost: second rows", "Redis lost: stuck"]
    rows = []
    for variant in FAULTED:
        if variant.title in missing:
            continue
        target = _Target(running[variant.title], variant.path)
        rows.append([_named(variant), *target.race(raced), *target.kill(keys), *target.lose_redis(keys)])
        print(f"peers: {', '.join(rows[-1])}", flush=True)
    write(
        name="peer_faults",
        title="Rows after faults: ours and the peers'",
        columns=columns,
        rows=rows,
        note=(
            f"Raced: {raced} keys, {COPIES} copies of each at once, over {servers.WORKERS} workers. "
            f"Killed: {keys} keys whose worker gets SIGKILL right after the business commit, then retries for "
            f"{RETRY_SECONDS:.0f} s; stuck: still no 2xx. Redis lost: {keys} keys, FLUSHALL between answer and "
            "retry. Every lock or lease that has a time holds 3 s: a longer one only delays what the retry finds. "
            "Our phased handler looks for its row when it is resumed, as its mode asks."
        ),
    )


class _Target:
    """One server under the three faults. Each method returns the cells of its columns."""

    def __init__(self, server: Server, path: str) -> None:
        self._server = server
        self._path = path

    def race(self, count: int) -> list[str]:
        """Start `COPIES` of each key together, each on a connection of its own."""
        keys = [str(uuid.uuid4()) for _ in range(count)]
        barrier = threading.Barrier(COPIES)

        def copy(_: int) -> None:
            for key in keys:
                barrier.wait()
                self._post(key)

        with ThreadPoolExecutor(COPIES) as pool:
            list(pool.map(copy, range(COPIES)))
        rows = self._server.rows()
        return [
            f"{sum(rows.get(key, 0) > 1 for key in keys)} of {count}",
            str(sum(key not in rows for key in keys)),
        ]

    def kill(self, count: int) -> list[str]:
        """End the worker of each key's first call by SIGKILL right after the commit; then retry."""
        keys = [str(uuid.uuid4()) for _ in range(count)]
        for key in keys:
            self._post(key, {"X-Die": "after-commit"})
        committed = self._server.rows()
        # a call that did not get as far as its row says nothing about the time after it
        keys = [key for key in keys if key in committed]
        return [f"{len(keys)} of {count}", *self._retried(keys)]

    def lose_redis(self, count: int) -> list[str]:
        """Get an answer for each key, empty Redis, send each key again."""
        keys = [key for key in (str(uuid.uuid4()) for _ in range(count)) if 0 < self._post(key) < 300]
        with redis.Redis.from_url(self._server.redis_url) as client:
            client.flushall()
        return self._retried(keys)

    def _retried(self, keys: Sequence[str]) -> list[str]:
        """Retry every key; return the keys with a second row and the keys without a good answer."""
        with ThreadPoolExecutor(RETRIERS) as pool:
            answered = list(pool.map(self._retry, keys))
        rows = self._server.rows()
        return [str(sum(rows.get(key, 0) > 1 for key in keys)), str(answered.count(False))]

    def _retry(self, key: str) -> bool:
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            if 200 <= self._post(key) < 300:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)

    def _post(self, key: str, extra: Mapping[str, str] | None = None) -> int:
        """Return the status; `BROKEN` if the connection ended without one."""
        headers = {"X-User": "1", "Content-Type": "application/json", "Idempotency-Key": key, **(extra or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=15)
        try:
            body = json.dumps({"reference": key, "amount": 1990})
            connection.request("POST", self._path, body=body, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return BROKEN
        finally:
            connection.close()
