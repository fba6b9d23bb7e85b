"""One turn of the lock benchmark, under the interpreter that has the kind of lock.

`python -m bench.lock_turns '{"kind": "Lock", …}'` with REDIS_URL set prints the figures as JSON
on its last line. The processes run in the peers' venvs, so every import of a lock is late.
"""

import asyncio
import json
import math
import mmap
import os
import struct
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import redis
import redis.asyncio

from bench.harness import FORK
from bench.variants import Peer

LEASE_SECONDS = 30  # of a peer's lock; ours has the same by default
SOCKET_SECONDS = 60.0  # redis-py's own 5 s would end a BLPOP of python-redis-lock that waits for longer
PYTHON_REDIS_LOCK = Peer("python-redis-lock", ("python-redis-lock", "redis", "hiredis"))
# of shared memory: time and process of the last release, and the process inside
_SHARED = struct.Struct("dqq")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock: `make(client, name)` has `acquire`, `release`. No peer: our venv."""

    make: Callable[[Any, str], Any]
    peer: Peer | None = None


class _Raw:
    """Two scripts that do nothing: the limit of one client."""

    def __init__(self, client: Any, name: str) -> None:
        self.acquire = self.release = partial(client.evalsha, client.script_load("return 1"), 1, name, "arg")


def _ours(kind: str, client: Any, name: str) -> Any:
    from idempotency import locks

    return getattr(locks, kind)(name, client=client)


def _redis_py(sleep: float, client: Any, name: str) -> Any:
    return client.lock(name, timeout=LEASE_SECONDS, sleep=sleep)


def _once(call: Any) -> Any:
    """Make something whose acquire is one command, and whose release is none."""
    return SimpleNamespace(acquire=call, release=lambda: None)


def _limiter(kind: str, client: Any, name: str) -> Any:
    from idempotency import locks

    return _once(getattr(locks, kind)(name, client=client, permits=1_000_000, interval_seconds=1).acquire)


def _python_redis_lock(client: Any, name: str) -> Any:
    from redis_lock import Lock

    return Lock(client, name, expire=LEASE_SECONDS)


RAW, OURS, REDIS_PY = "two EVALSHA of `return 1`", ("Lock", "FairLock"), "redis-py Lock"
KINDS = {
    RAW: Kind(_Raw),
    **{kind: Kind(partial(_ours, kind)) for kind in OURS},
    REDIS_PY: Kind(partial(_redis_py, 0.1)),
    "redis-py Lock, sleep=0.001": Kind(partial(_redis_py, 0.001)),
    "python-redis-lock": Kind(_python_redis_lock, PYTHON_REDIS_LOCK),
}


ONE = "one EVALSHA of `return 1`"
COMMANDS = {
    ONE: Kind(lambda client, name: _once(_Raw(client, name).acquire)),
    "RateLimiter, sliding window": Kind(partial(_limiter, "RateLimiter")),
    "TokenBucket": Kind(partial(_limiter, "TokenBucket")),
    "ask: Lock.owner": Kind(lambda client, name: _once(_ours("Lock", client, name).owner)),
}
ASYNCIO = (RAW, "Lock", REDIS_PY)


def _client(kind: Any = redis.Redis) -> Any:
    return kind.from_url(os.environ["REDIS_URL"], socket_timeout=SOCKET_SECONDS)


async def alone_on_asyncio(title: str, turn: dict[str, Any]) -> dict[str, Any]:
    """Take an uncontended lock and give it back, again and again, in one task."""
    from idempotency.locks import aio

    async with _client(redis.asyncio.Redis) as client:
        made = await _made_for_asyncio(title, client, turn["name"], aio)
        count, now = -1, time.monotonic
        end = math.inf
        while now() < end:
            await made.acquire()
            await made.release()
            count += 1
            if count == 0:
                end = now() + turn["seconds"]
        await aio.close()
    return {"rate": count / turn["seconds"]}


async def _made_for_asyncio(title: str, client: Any, name: str, aio: Any) -> Any:
    if title == RAW:
        raw = SimpleNamespace()
        raw.acquire = raw.release = partial(client.evalsha, await client.script_load("return 1"), 1, name, "arg")
        return raw
    return aio.Lock(name, client=client) if title == "Lock" else _redis_py(0.1, client, name)


def contend(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Let processes want one lock for a section that sleeps.

    One process and a section of 0 s measure the uncontended lock.
    """
    shared, go = mmap.mmap(-1, mmap.PAGESIZE), FORK.Barrier(turn["processes"])
    pipes = []
    for index in range(1, turn["processes"] + 1):
        ours, its = FORK.Pipe()
        FORK.Process(target=_contender, args=(its, index, kind, turn, shared, go), daemon=True).start()
        pipes.append(ours)
    seen = [pipe.recv() for pipe in pipes]
    latencies = sorted(latency for one in seen for latency in one["latencies"])
    return {
        "rate": sum(one["count"] for one in seen) / turn["seconds"],
        "handed": len(latencies) / turn["seconds"],
        "p50": _quantile(latencies, 0.5),
        "p99": _quantile(latencies, 0.99),
        "overlaps": sum(one["overlaps"] for one in seen),
    }


def _contender(pipe: Any, index: int, kind: Kind, turn: dict[str, Any], shared: mmap.mmap, go: Any) -> None:
    lock = kind.make(_client(), turn["name"])
    lock.acquire()
    lock.release()
    figures: dict[str, Any] = {"count": 0, "overlaps": 0, "latencies": []}
    go.wait()
    now = time.monotonic
    end = now() + turn["seconds"]
    while now() < end:
        lock.acquire()
        inside = now()
        released, by, taken = _SHARED.unpack_from(shared)
        _SHARED.pack_into(shared, 0, released, by, index)
        figures["overlaps"] += bool(taken)
        if by not in (0, index):
            figures["latencies"].append(inside - released)
        figures["count"] += inside < end
        if turn["section"]:
            time.sleep(turn["section"])
        _SHARED.pack_into(shared, 0, now(), index, 0)
        lock.release()
    pipe.send(figures)


def hold_many(turn: dict[str, Any]) -> dict[str, float]:
    """Hold many names in one process, and count what they and their renewals cost."""
    from psutil import Process

    from idempotency.locks import Lock
    from idempotency.locks.engine.hub import Hub

    client, renewed, prolong = _client(), [], Hub.prolong
    processes = Process(), Process(int(client.info("server")["process_id"]))

    def counted(hub: Hub, holds: list[Any], seconds: float | None = None) -> Any:
        renewed.append(len(holds))
        return prolong(hub, holds, seconds)

    def memory_and_cpu() -> list[float]:
        return [each.memory_info().rss for each in processes] + [sum(each.cpu_times()[:2]) for each in processes]

    Hub.prolong = counted  # type: ignore[method-assign]
    _ours("Lock", client, "first").acquire()  # connects
    before = memory_and_cpu()
    held = [Lock(f"{turn['name']}-{number}", client=client) for number in range(int(turn["names"]))]
    for lock in held:
        lock.acquire()
    full = memory_and_cpu()
    renewed.clear()
    time.sleep(turn["seconds"])
    spent = [(now - then) / turn["seconds"] for now, then in zip(memory_and_cpu(), full, strict=True)]
    process, server = ((now - then) / len(held) for now, then in zip(full[:2], before, strict=False))
    return {
        "lost": sum(lock.lost for lock in held),
        **{"bytes": process, "redis_bytes": server, "cpu": spent[2], "redis_cpu": spent[3]},
        **{"renewals": sum(renewed) / turn["seconds"], "commands": len(renewed) / turn["seconds"]},
    }


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else math.nan


def main(text: str) -> None:
    """Run the turn and print its figures."""
    turn = json.loads(text)
    turn["name"] = f"bench-{uuid.uuid4().hex}"
    title = turn["kind"]
    if "names" in turn:
        figures: dict[str, Any] = hold_many(turn)
    elif turn["asyncio"]:
        figures = asyncio.run(alone_on_asyncio(title, turn))
    else:
        figures = contend((KINDS | COMMANDS)[title], turn)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
