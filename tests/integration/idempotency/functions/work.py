"""Functions that tests call once, in this process and in others, and the process that calls them."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from idempotency import once
from idempotency.protocol import heartbeat
from tests.processes import on_the_tests_database

ROOT = Path(__file__).resolve().parents[4]


def place(name: str = "order") -> dict[str, Any]:
    """One row, with a name that never collides: how many there are is how often it happened."""
    return {"id": Group.objects.create(name=f"{name} {uuid.uuid4()}").pk}


def place_and_hang() -> dict[str, Any]:
    """Do it, say so, and go on for as long as the process lives."""
    made = place("held")
    print("inside", flush=True)
    signal.pause()
    return made


def early_beats() -> None:
    """Renew each lease at once, and again and again."""
    heartbeat.RENEW_AFTER = 0.01


class Child:
    """Process that evaluates `call`, an expression over this module and `once`."""

    def __init__(self, call: str) -> None:
        command = [sys.executable, "-m", "tests.integration.idempotency.functions.start", call]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=on_the_tests_database(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line that it printed."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go(self) -> None:
        """Let it begin, where it waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """What the call returned; None if it died."""
        line = self.line()
        self.end()
        return json.loads(line) if line else None

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self.end()

    def end(self) -> int:
        """Wait for its end; its exit code."""
        code = self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code


Starts = Callable[[str], Child]


def evaluate(call: str) -> None:
    """In the child: print `ready`, wait for the word, print the result as JSON."""
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(eval(call, {"once": once, **globals()})), flush=True)
