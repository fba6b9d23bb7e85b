"""`wrk` against one server, and the CPU time that the serving side took for it."""

import itertools
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import redis

from bench.servers import Server

CONNECTIONS = 8
SCRIPT = Path(__file__).parent / "wrk.lua"

CpuSeconds = dict[tuple[int, float], float]  # (pid, start) -> used so far

# keys of this run start after those of all runs before
_runs = itertools.count(int(time.time()) & 0x0FFFFFFF)


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of wrk saw.

    Attributes:
        rate: requests a second.
        p50_ms: median latency.
        p99_ms: latency of the slowest hundredth.
        cpu_ms: CPU time a request of gunicorn, PostgreSQL and Redis together.
        failed: answers of 400 and more, and broken connections.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    failed: int


def wrk_binary() -> str:
    """Where wrk is.

    Raises:
        RuntimeError: it is not installed.
    """
    if found := shutil.which("wrk"):
        return found
    raise RuntimeError("wrk is missing. Install it with: apt-get install wrk")


def run(server: Server, path: str, *, seconds: int, replays: bool) -> Load:
    """Post to `path` over eight connections for `seconds`."""
    host = f"127.0.0.1:{server.port}"
    # one key for all replays of a server: the first answer stays
    arguments = [host, path, "1", "replay"] if replays else [host, path, str(next(_runs))]
    command = [wrk_binary(), "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{seconds}s"]
    command += ["--latency", "--timeout", "10s", "--script", str(SCRIPT), f"http://{host}", "--", *arguments]
    before = _cpu_seconds(server)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    used = cpu_used(before, _cpu_seconds(server))
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    requests = max(figures["requests"], 1)
    return Load(
        rate=figures["requests"] / figures["seconds"],
        p50_ms=figures["p50_ms"],
        p99_ms=figures["p99_ms"],
        cpu_ms=used / requests * 1e3,
        failed=figures["refused"] + figures["broken"],
    )


def _cpu_seconds(server: Server) -> CpuSeconds:
    """Of the gunicorn, the whole PostgreSQL and Redis; the other variants' processes are idle meanwhile."""
    return cpu_seconds(server.child.pid, *server_pids())


def cpu_seconds(*roots: int) -> CpuSeconds:
    """(pid, start) -> used so far, of these processes and all that they started and that still run."""
    used: CpuSeconds = {}
    for root in roots:
        master = psutil.Process(root)
        for process in (master, *master.children(recursive=True)):
            try:
                times = process.cpu_times()
                used[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
    return used


def cpu_used(before: CpuSeconds, after: CpuSeconds) -> float:
    """CPU seconds between the two; without those of a process that ended in between."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())


def server_pids() -> tuple[int, int]:
    """Of the postmaster and of Redis."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        postmaster = psutil.Process(connection.info.backend_pid).ppid()
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        return postmaster, int(client.info("server")["process_id"])
