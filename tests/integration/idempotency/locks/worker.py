"""A holder in a process of its own: reads commands as lines of JSON, answers each with one.

`python -m tests.integration.idempotency.locks.worker URL DATABASE`. A command names a lock and what to do with it; `expr` is evaluated with
`lock` being it. The test kills and stops the process at will.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import redis
from django.db import DEFAULT_DB_ALIAS, connection, connections
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency import locks
from tests.processes import stand_still


def main(url: str, database: str) -> None:
    connections[DEFAULT_DB_ALIAS].settings_dict["NAME"] = database  # a part of each lock's name
    client = redis.Redis.from_url(url, socket_timeout=10, retry=Retry(NoBackoff(), 0))
    made: dict[str, Any] = {}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        kind, name, settings, expression = json.loads(line)
        lock = made.setdefault(f"{kind} {name}", getattr(locks, kind)(name, client=client, **settings))
        try:
            result = eval(expression, {"lock": lock, "os": os})
        except locks.LockError as error:
            result = type(error).__name__
        print(json.dumps(result), flush=True)


class Worker:
    """The test's end of it."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.idempotency.locks.worker",
                url,
                connection.settings_dict["NAME"],
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.answer() == "ready"

    def begin(self, expression: str, *, kind: str = "Lock", name: str = "thing", **settings: Any) -> None:
        """Have it evaluate `expression`, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, name, settings, expression]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What came of the oldest command that is not answered yet."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)

    def do(self, expression: str, **how: Any) -> Any:
        self.begin(expression, **how)
        return self.answer()

    def stop(self) -> None:
        """It stands still."""
        stand_still(self._process.pid)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, and the kernel has closed what it had open."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(30)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def workers(url: str, count: int) -> Iterator[list[Worker]]:
    """Some of them, ended with the test."""
    made = [Worker(url) for _ in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            worker.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
