"""Turns of the lock benchmark that measure speed: alone, and among processes that want the same lock.

The process that calls them only forks: what is measured runs in children, each with a client and a hub of its own.
"""

import asyncio
import math
import mmap
import multiprocessing
import os
import random
import statistics
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import redis

from bench import lock_kinds
from bench.lock_kinds import Kind

WARM_PAIRS = 200
SLICE_SECONDS = 0.2
SOCKET_SECONDS = 60.0  # redis-py's own 5 s would end a BLPOP of python-redis-lock that waits for longer
ASYNC_SENT = ("set", "evalsha", "eval")

# time of the last release, who it was, and whether somebody is inside
_SHARED = struct.Struct("dqq")
_fork = multiprocessing.get_context("fork")


def client_here() -> Any:
    """The same client for all."""
    return redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=SOCKET_SECONDS)


def commands(client: Any, names: tuple[str, ...]) -> int:
    """How often the server has run these."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)


def start(function: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """A forked child that runs `function(pipe, *arguments)`, and our end of the pipe."""
    mine, its = _fork.Pipe()
    child = _fork.Process(target=function, args=(its, *arguments), daemon=True)
    child.start()
    its.close()
    return child, mine


def pairs(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Uncontended: acquire and release, one after the other."""
    child, pipe = start(_pairs, kind, turn)
    figures: dict[str, Any] = pipe.recv()
    child.join()
    return figures


def _pairs(pipe: Connection, kind: Kind, turn: dict[str, Any]) -> None:
    counter, client = client_here(), client_here()
    raw = kind_pair(lock_kinds.RAW.make(client, "", None))
    mine = kind_pair(kind.make(client, turn["name"], None))
    rates: dict[Any, list[float]] = {raw: [], mine: []}
    sent = count = 0
    for _ in range(WARM_PAIRS):
        raw()
        mine()
    # in slices in turn: a slow moment of the machine meets both
    for _ in range(max(1, round(turn["seconds"] / SLICE_SECONDS / 2))):
        for pair, measured in rates.items():
            before, pairs_done = commands(counter, kind.sent), 0
            began = time.perf_counter()
            while (now := time.perf_counter()) < began + SLICE_SECONDS:
                pair()
                pairs_done += 1
            measured.append(pairs_done / (now - began))
            if pair is mine:
                sent, count = sent + commands(counter, kind.sent) - before, count + pairs_done
    pipe.send(_ratio(rates[mine], rates[raw], sent / count))


def kind_pair(lock: Any) -> Callable[[], None]:
    """Acquire and release as one call, which costs each kind the same."""
    acquire, release = lock.acquire, lock.release

    def pair() -> None:
        acquire()
        release()

    return pair


def _ratio(mine: list[float], raw: list[float], sent: float) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(mine, raw, strict=True)]
    return {"rate": statistics.median(mine), "ratio": statistics.median(ratios), "commands": sent}


def async_pairs(turn: dict[str, Any]) -> dict[str, Any]:
    """Uncontended on asyncio, in a task that awaits one command after the other."""
    return asyncio.run(_async_pairs(turn))


async def _async_pairs(turn: dict[str, Any]) -> dict[str, Any]:
    from redis.asyncio import Redis

    counter = client_here()
    client = Redis.from_url(os.environ["REDIS_URL"])
    raw = await lock_kinds.make_async(lock_kinds.ASYNC_RAW, client, "")
    mine = await lock_kinds.make_async(turn["kind"], client, turn["name"])
    rates: list[tuple[Any, list[float]]] = [(raw, []), (mine, [])]
    sent = count = 0
    for _ in range(WARM_PAIRS):
        for lock in (raw, mine):
            await lock.acquire()
            await lock.release()
    for _ in range(max(1, round(turn["seconds"] / SLICE_SECONDS / 2))):
        for lock, measured in rates:
            before, pairs_done = commands(counter, ASYNC_SENT), 0
            began = time.perf_counter()
            while (now := time.perf_counter()) < began + SLICE_SECONDS:
                await lock.acquire()
                await lock.release()
                pairs_done += 1
            measured.append(pairs_done / (now - began))
            if lock is mine:
                sent, count = sent + commands(counter, ASYNC_SENT) - before, count + pairs_done
    await client.aclose()
    return _ratio(rates[1][1], rates[0][1], sent / count)


def contend(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Some processes, one lock, a section that sleeps; with `rest` each pauses after its release."""
    counter = client_here()
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    warm, go = (_fork.Barrier(turn["processes"] + 1) for _ in range(2))
    started = [start(_contender, kind, turn, index, shared, warm, go) for index in range(1, turn["processes"] + 1)]
    warm.wait()
    before = commands(counter, kind.sent)
    go.wait()
    told = [pipe.recv() for _, pipe in started]
    sent = commands(counter, kind.sent) - before
    for child, _ in started:
        child.join()
    counts = [one["count"] for one in told]
    sleep_seconds = sum(one["slept"] for one in told) / sum(one["all"] for one in told)
    latencies = sorted(latency for one in told for latency in one["latencies"])
    rate = sum(counts) / turn["seconds"]
    return {
        "rate": rate,
        "part": rate * sleep_seconds,
        "commands": sent / sum(one["all"] for one in told),
        "spread": max(counts) / min(counts) if min(counts) else math.inf,
        "worst": max(one["worst"] for one in told),
        "handed": rate * len(latencies) / sum(one["all"] for one in told),
        "p50": quantile(latencies, 0.5),
        "p99": quantile(latencies, 0.99),
        "overlaps": sum(one["overlaps"] for one in told),
    }


def _contender(
    pipe: Connection, kind: Kind, turn: dict[str, Any], index: int, shared: mmap.mmap, warm: Any, go: Any
) -> None:
    lock = kind.make(client_here(), turn["name"], None)
    lock.acquire()
    lock.release()
    told: dict[str, Any] = {"count": 0, "all": 0, "worst": 0.0, "slept": 0.0, "overlaps": 0}
    latencies = told["latencies"] = []
    warm.wait()
    go.wait()
    now = time.monotonic
    end = now() + turn["seconds"]
    while (asked := now()) < end:
        lock.acquire()
        inside = now()
        released, by, taken = _SHARED.unpack_from(shared)
        _SHARED.pack_into(shared, 0, released, by, index)
        told["overlaps"] += bool(taken)
        if by not in (0, index):
            latencies.append(inside - released)
        told["worst"] = max(told["worst"], inside - asked)
        told["count"] += inside < end
        told["all"] += 1
        slept = now()
        time.sleep(turn["section"])
        leaving = now()
        told["slept"] += leaving - slept
        _SHARED.pack_into(shared, 0, leaving, index, 0)
        lock.release()
        if turn["rest"]:
            time.sleep(random.uniform(0.5, 1.5) * turn["rest"])
    pipe.send(told)


def quantile(ordered: list[float], part: float) -> float:
    """Of values in order; not a number if there are none."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else math.nan
