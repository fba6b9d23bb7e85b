"""Turns of the lock benchmark that count and kill: many locks, many waiters, and processes that die."""

import os
import resource
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import redis

from bench.lock_kinds import Kind
from bench.lock_turns import client_here, commands, start

LATER_SECONDS = 1.0  # a waiter comes when a part of the lease is over: one that counts from then is late
SETTLE_SECONDS = 0.3  # for a process that was told to wait to be really waiting
REACH_SECONDS = 60.0  # for a thousand threads to have asked
FILES = 8192
CONNECTIONS = 4000


def dead_holder(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """The holder is killed while one waits; how much longer than the lease it lasts until that one has it."""
    holder, held = start(_hold, kind, turn, turn["lease"])
    held_at = held.recv()
    time.sleep(LATER_SECONDS)
    waiter, waiting = start(_hold, kind, turn, turn["lease"])
    time.sleep(SETTLE_SECONDS)
    _kill(holder)
    late = waiting.recv() - held_at - turn["counted"]
    _kill(waiter)
    return {"late": late}


def dead_waiter(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Who waits first is killed, then the holder releases; how long until the second has it."""
    holder, held = start(_hold, kind, turn, None)
    held.recv()
    first, _first_pipe = start(_hold, kind, turn, None)
    time.sleep(SETTLE_SECONDS)
    second, waiting = start(_hold, kind, turn, None)
    time.sleep(SETTLE_SECONDS)
    _kill(first)
    held.send("release")
    released = held.recv()
    late = waiting.recv() - released
    _kill(second)
    _kill(holder)
    return {"late": late}


def _hold(pipe: Connection, kind: Kind, turn: dict[str, Any], lease: float | None) -> None:
    lock = kind.make(client_here(), turn["name"], lease)
    lock.acquire()
    pipe.send(time.monotonic())
    pipe.recv()
    released = time.monotonic()
    lock.release()
    pipe.send(released)
    pipe.recv()


def _kill(child: Any) -> None:
    child.kill()
    child.join()


def _roomy_client() -> Any:
    """For a thousand threads that ask at once or block for long: redis-py's own limits would end most of them."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    return redis.Redis.from_url(os.environ["REDIS_URL"], max_connections=CONNECTIONS, socket_timeout=None)


def held(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Hold many; the threads that renew them, and what they send over a little more than one period."""
    child, pipe = start(_held, kind, turn)
    figures: dict[str, Any] = pipe.recv()
    _kill(child)
    return figures


def _held(pipe: Connection, kind: Kind, turn: dict[str, Any]) -> None:
    counter, client = client_here(), _roomy_client()
    threads = threading.active_count()
    locks = [kind.make(client, f"{turn['name']}-{number}", None) for number in range(turn["count"])]
    for lock in locks:
        lock.acquire()
    # of ours the subscriber, which is there for waiters, is no watchdog
    watchdogs = sum(thread.name != "locks-subscriber" for thread in threading.enumerate()) - threads
    before = commands(counter, kind.sent)
    time.sleep(turn["seconds"])
    pipe.send({"threads": watchdogs, "commands": commands(counter, kind.sent) - before})


def waited(kind: Kind, turn: dict[str, Any]) -> dict[str, Any]:
    """Many threads of one process wait for one lock; its connections, and what they send while nothing happens."""
    holder, held_pipe = start(_hold, kind, turn, None)
    held_pipe.recv()
    child, pipe = start(_wait, kind, turn)
    figures: dict[str, Any] = pipe.recv()
    _kill(child)
    _kill(holder)
    return figures


def _wait(pipe: Connection, kind: Kind, turn: dict[str, Any]) -> None:
    counter, client = client_here(), _roomy_client()
    before = commands(counter, kind.sent)
    connections, subscribers = len(counter.client_list()), len(counter.client_list(_type="pubsub"))
    for _ in range(turn["count"]):
        lock = kind.make(client, turn["name"], None)
        threading.Thread(target=lock.acquire, daemon=True).start()
    until = time.monotonic() + REACH_SECONDS
    while commands(counter, kind.sent) - before < turn["count"] and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)
    sent = commands(counter, kind.sent)
    time.sleep(turn["seconds"])
    rate = (commands(counter, kind.sent) - sent) / turn["seconds"]
    pipe.send(
        {
            "subscribers": len(counter.client_list(_type="pubsub")) - subscribers,
            "connections": len(counter.client_list()) - connections,
            "commands": rate,
        }
    )
