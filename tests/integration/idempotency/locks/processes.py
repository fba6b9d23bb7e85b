"""Processes with Django on the tests' database, that do one thing after the other as a test tells them; and a table.

What they are told is a function of a test's module, by name: nothing of ours is shared with them but the servers.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import django
from django.apps.registry import Apps
from django.db import connection, connections, models

SECONDS = 60.0
FRESH = multiprocessing.get_context("spawn")  # a fork would inherit our connections


class Process:
    """One of them; `end` it.

    Args:
        name: of the database.
        barrier: of `FRESH`, which `meet` waits at.
    """

    def __init__(self, name: str, barrier: Any = None) -> None:
        self._barrier = barrier  # it ends with its last user here
        self._pipe, theirs = FRESH.Pipe()
        self._process = FRESH.Process(target=_serve, args=(theirs, name, barrier), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it call `function` when it has done what it was told before."""
        self._pipe.send((function, arguments))

    def result(self) -> Any:
        """What the first call that was not asked about returned, or its error."""
        assert self._pipe.poll(SECONDS), "a process does not answer"
        value, error = self._pipe.recv()
        if error is not None:
            raise error
        return value

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(function, *arguments)
        return self.result()

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9; it is gone afterwards."""
        self.send(signal.SIGKILL)
        self._process.join(SECONDS)

    def end(self) -> None:
        if self._process.is_alive():
            self.send(signal.SIGCONT)
            with contextlib.suppress(OSError):
                self._pipe.send(None)
        self._process.join(SECONDS)
        self._pipe.close()
        self._process.close()


_barriers: list[Any] = []


def meet() -> None:
    """In a process: wait until all that share the barrier are here."""
    _barriers[0].wait(SECONDS)


def _serve(pipe: Any, name: str, barrier: Any) -> None:
    _barriers.append(barrier)
    django.setup()
    connections["default"].settings_dict["NAME"] = name
    while (told := pipe.recv()) is not None:
        function, arguments = told
        try:
            pipe.send((function(*arguments), None))
        except Exception as error:
            pipe.send((None, type(error)(str(error))))  # without its cause, which may not travel
    connections.close_all()


@contextlib.contextmanager
def processes() -> Iterator[Callable[..., list[Process]]]:
    """`start(count)` them, all at one barrier; ended afterwards."""
    started: list[Process] = []

    def start(count: int) -> list[Process]:
        barrier = FRESH.Barrier(count)
        name = connection.settings_dict["NAME"]
        fresh = [Process(name, barrier) for _ in range(count)]
        started.extend(fresh)
        return fresh

    try:
        yield start
    finally:
        for each in started:
            each.end()


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
