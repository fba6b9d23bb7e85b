"""Locks on Redis against the peers: alone, in a thread or loop, and contended.

Then limiters and questions against one empty command, and a process that holds many names.

A turn is a process of its own (`bench.lock_turns`). All use the same Redis over its Unix socket, and redis-py with
hiredis in one version.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial

import redis

from bench import servers
from bench.harness import options, take_turns
from bench.lock_turns import ASYNCIO, COMMANDS, KINDS, ONE, RAW, REDIS_PY
from bench.peer_venvs import ROOT, PeerUnavailableError, python_of
from bench.report import compare, write

PROCESSES = 8
SECTION_SECONDS = 0.001
TURN_LIMIT_SECONDS = 180
REDISSON = (
    "Redisson: lockWatchdogTimeout 30 s, lockWatchdogBatchSize 100, as docs/configuration.md has them; each lock "
    "is renewed each third of it, as RenewalTask.java has it (read 2026-11)."
)

Seen = Mapping[str, Sequence[Mapping[str, float]]]


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/locks*."""
    given = options("locks", arguments, rounds=5, seconds=4.0, names=10_000, renewing=60.0)
    servers.require_own_redis()
    titles = []
    for title, kind in KINDS.items():
        try:
            python_of(kind.peer)
            titles.append(title)
        except PeerUnavailableError as error:
            print(f"locks: {title}: {error}", flush=True)
    alone, on_asyncio, racing = (
        take_turns(f"locks, {name}", {title: partial(_turn, title, **turn) for title in ways}, rounds=given.rounds)
        for name, ways, turn in (
            ("alone", titles, {"seconds": given.seconds / 4, "processes": 1, "section": 0}),
            ("asyncio", ASYNCIO, {"seconds": given.seconds / 4, "asyncio": True}),
            ("racing", titles, {"seconds": given.seconds, "processes": PROCESSES, "section": SECTION_SECONDS}),
        )
    )
    locked = [found for title, found in racing.items() if title != RAW]  # bare scripts keep nobody out
    overlaps = sum(turn["overlaps"] for found in locked for turn in found)
    latencies = [
        f"{title} {statistics.median(turn['p50'] for turn in found) * 1e3:.2f}, "
        f"{statistics.median(turn['p99'] for turn in found) * 1e3:.2f}"
        for title, found in racing.items()
    ]
    note = (
        f"{given.rounds} rounds of {given.seconds:g} s. Racing: the section is a sleep of "
        f"{SECTION_SECONDS * 1e3:.0f} ms. Two inside a lock at once: {overlaps:g}. Hand-over, p50 and p99 in ms: "
        f"{'; '.join(latencies)}."
    )
    seen = {
        "alone, pairs of acquire and release": _figures(alone, "rate"),
        "alone on asyncio, pairs of both": _figures(on_asyncio, "rate"),
        f"{PROCESSES} processes, acquisitions": _figures(racing, "rate"),
        f"{PROCESSES} processes, hand-overs to another process": _figures(racing, "handed"),
    }
    compare("locks", "One lock", seen, base=REDIS_PY, unit="acquisitions", note=note)
    calls = {}
    for processes in (1, PROCESSES):
        turn = {"seconds": given.seconds / 4, "processes": processes, "section": 0}
        ways = {title: partial(_turn, title, **turn) for title in COMMANDS}
        turns = take_turns(f"locks, one command, {processes}", ways, rounds=given.rounds)
        calls[f"{processes} at once"] = _figures(turns, "rate")
    note = f"{given.rounds} rounds of {given.seconds / 4:g} s on one name; no limit is reached."
    compare("lock_commands", "Limiters and questions", calls, base=ONE, unit="calls", note=note)
    _hold(given.names, given.renewing)


def _hold(names: int, seconds: float) -> None:
    """Write what a process pays that holds many names, beside what Redisson documents."""
    found = _turn("Lock", names=names, seconds=seconds)
    ours = ("bytes", "redis_bytes", "renewals", "commands", "cpu", "redis_cpu", "lost")
    redisson = ["-", "-", f"{names / 10:.0f}", f"{names / 1000:.1f}", "-", "-", "-"]
    write(
        name="lock_watchdog",
        title=f"{names} names held by one process",
        columns=(*("", "bytes a name", "of Redis", "renewals/s", "commands/s", "CPU s/s", "of Redis", "lost"),),
        rows=[
            ["PayOnce", *(f"{found[name]:.3g}" for name in ours)],
            ["Redisson, as it documents its watchdog", *redisson],
        ],
        note=f"Renewals of {seconds:g} s; bytes by the processes' resident memory. {REDISSON}",
    )


def _turn(title: str, **turn: float) -> dict[str, float]:
    """Run one turn on an empty Redis."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.flushall()
    command = [
        str(python_of((KINDS | COMMANDS)[title].peer)),
        "-m",
        "bench.lock_turns",
        json.dumps({"kind": title, "asyncio": False, **turn}),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TURN_LIMIT_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"A turn of {title} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _figures(seen: Seen, name: str) -> dict[str, list[float]]:
    return {title: [turn[name] for turn in found] for title, found in seen.items()}
