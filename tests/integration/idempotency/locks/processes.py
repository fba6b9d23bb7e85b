"""Processes with Django on the tests' database that live for the whole session.

What they run is a function of a module, by name; nothing of ours is shared with them but the servers.
"""

import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django
import redis
from django.apps.registry import Apps
from django.db import connection, connections, models
from kazoo.client import KazooClient
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency import locks
from idempotency.locks.engine import places
from idempotency.locks.postgres import AdvisoryLock, write_fenced
from idempotency.locks.zookeeper import ZooKeeperLock
from tests.processes import stand_still

SECONDS = 60.0
PATIENT_CLAIM_SECONDS = 30.0  # of a grant, in which a busy machine wakes its waiter
SESSION_SECONDS = 6.0  # of ZooKeeper's, whose process may be killed: soon over, and not by a busy machine
FRESH = multiprocessing.get_context("spawn")  # a fork would inherit our connections
_names = itertools.count()


class Process:
    """One of them; its connections of Django are closed after each call.

    Args:
        name: of the database.
    """

    def __init__(self, name: str) -> None:
        self._pipe, theirs = FRESH.Pipe()
        self._process = FRESH.Process(target=_serve, args=(theirs, name), daemon=True)
        self._process.start()
        theirs.close()
        self.pending = 0  # calls that were not asked about

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it call `function` after what it was given before."""
        self.pending += 1
        self._pipe.send((function, arguments))

    def result(self) -> Any:
        """Return or raise what came of the oldest call that was not asked about."""
        assert self._pipe.poll(SECONDS), "a process does not answer"
        value, error = self._pipe.recv()
        self.pending -= 1
        if error is not None:
            raise error
        return value

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(function, *arguments)
        return self.result()

    @property
    def is_idle(self) -> bool:
        return self.pending == 0 and self._process.is_alive()

    def stop(self) -> None:
        """It stands still."""
        stand_still(self._process.pid or 0)

    def go_on(self) -> None:
        os.kill(self._process.pid or 0, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9; it is gone afterwards."""
        self._process.kill()
        self._process.join(SECONDS)


def _serve(pipe: Any, name: str) -> None:
    django.setup()
    connections["default"].settings_dict["NAME"] = name  # also a part of each lock's name
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send((function(*arguments), None))
        except Exception as error:
            pipe.send((None, type(error)(str(error))))  # without its cause, which may not travel
        connections.close_all()


class Pool:
    """Starts processes when they are wanted, and keeps those that live and have nothing to do."""

    def __init__(self) -> None:
        self._all: list[Process] = []

    def __call__(self, count: int) -> list[Process]:
        idle = [each for each in self._all if each.is_idle]
        for each in set(self._all).difference(idle):
            each.kill()
        self._all = idle + [Process(connection.settings_dict["NAME"]) for _ in range(count - len(idle))]
        return self._all[:count]

    def end(self) -> None:
        for each in self._all:
            each.kill()


class Hand:
    """A lock in another process. `begin` and `do` evaluate an expression with `lock` being it."""

    def __init__(self, process: Process, *about: Any) -> None:
        self._process, self._about = process, about
        self.answer, self.stop, self.go_on, self.kill = process.result, process.stop, process.go_on, process.kill

    def begin(self, expression: str) -> None:
        self._process.begin(_evaluated, *self._about, expression)

    def do(self, expression: str) -> Any:
        self.begin(expression)
        return self.answer()


def hands(
    processes: list[Process], address: str, kind: str, name: str = "", **settings: Any
) -> tuple[str, list[Hand]]:
    """Return the name of a lock that no process has used before, and the lock in each of them.

    Args:
        address: of the Redis or ZooKeeper.
        settings: of the lock; beside them ``claim_seconds``, where a grant is to lapse.
    """
    name = name or f"thing {next(_names)}"
    return name, [Hand(process, address, kind, name, settings) for process in processes]


@functools.cache
def _redis(address: str) -> redis.Redis:
    return redis.Redis.from_url(address, socket_timeout=30, retry=Retry(NoBackoff(), 0))


@functools.cache
def _zookeeper(address: str) -> KazooClient:
    client = KazooClient(address, timeout=SESSION_SECONDS)
    client.start(timeout=SECONDS)
    return client


def _evaluated(address: str, kind: str, name: str, settings: dict[str, Any], expression: str) -> Any:
    lock: Any
    places.CLAIM_SECONDS = settings.pop("claim_seconds", PATIENT_CLAIM_SECONDS)
    if kind == "AdvisoryLock":
        lock = AdvisoryLock(name, **settings)
    elif kind == "ZooKeeperLock":
        lock = ZooKeeperLock(name, client=_zookeeper(address), **settings)
    else:
        lock = getattr(locks, kind)(name, client=_redis(address), **settings)
    return eval(expression, {"lock": lock, "os": os, "Path": Path, "write": write})


@functools.cache
def account_model() -> Any:
    """A table of these tests alone, known to no app."""

    class Account(models.Model):
        balance = models.IntegerField(default=0)
        fence = models.BigIntegerField(default=0)

        class Meta:
            app_label = "lock_tests"
            apps = Apps()
            managed = False
            db_table = "lock_tests_account"

    return Account


def write(token: int, balance: int) -> None:
    """Write under a fence."""
    write_fenced(account_model().objects.filter(pk=1), token=token, balance=balance)


@contextlib.contextmanager
def account_table(rows: int) -> Iterator[Any]:
    """The model, with a table of `rows` rows whose primary keys are 1, 2, …"""
    model = account_model()
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        model.objects.bulk_create(model(pk=number) for number in range(1, rows + 1))
        yield model
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
