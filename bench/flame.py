"""Where a web process spends its time while orders with fresh keys arrive: a flame graph, and shares by layer.

py-spy looks at the process from outside, many times a second. First with more callers than it can serve, at the
thread that holds the interpreter's lock: what the one core goes into that limits a process. Then with one caller,
at threads that wait too: what the time of one order goes into. A moment counts for the innermost frame whose layer
is known, so what a layer calls of the standard library is its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from itertools import dropwhile
from pathlib import Path

from bench.crowd import FRESH, Crowd
from bench.flame_graph import Stacks, draw
from bench.report import Table, write_image

SECONDS = 6
SAMPLES_A_SECOND = 200
BUSY_CALLERS = 8

# the first that fits: a beginning of the file's name, below its package's folder
LAYERS = {
    "psycopg/": "psycopg, PostgreSQL",
    "psycopg_binary/": "psycopg, PostgreSQL",
    "redis/": "Redis",
    "hiredis/": "Redis",
    "django_redis/": "Redis",
    "idempotency/redis/line.py": "Redis",
    "django/db/": "Django's ORM",
    "django/": "Django, DRF",
    "rest_framework/": "Django, DRF",
    "csp/": "Django, DRF",
    "whitenoise/": "Django, DRF",
    "idempotency/": "idempotency",
    "shop/": "shop, payments",
    "payments/": "shop, payments",
    "gunicorn/": "gunicorn",
}
LAYER_NAMES = tuple(dict.fromkeys(LAYERS.values()))
REQUEST = "ThreadWorker.handle_request"  # under it a request is handled
# Django's way from one middleware to the next: twenty frames on every stack, which tell nothing
WRAPPERS = ("convert_exception_to_response.<locals>.inner (", "MiddlewareMixin.__call__ (")
REST = "other"


class NotPermittedError(Exception):
    """py-spy is not there, or may not look into another process."""


def run(crowd: Crowd, *, pid: int, seconds: int) -> None:
    """Record, and write bench/results/flame.md and .svg; without py-spy say so and leave the former ones.

    Args:
        crowd: calls the first of its web processes.
        pid: of that process.
        seconds: of each of the two recordings.
    """
    try:
        with crowd.calling(FRESH, processes=1, callers=BUSY_CALLERS):
            busy = _record(pid, seconds, waiting=False)
        with crowd.calling(FRESH, processes=1, callers=1):
            alone = _record(pid, seconds, waiting=True)
    except NotPermittedError as error:
        print(f"capacity: no flame graph: {error}", flush=True)
        return
    # the other threads wait for callers
    alone = Counter({stack: count for stack, count in alone.items() if _handles_request(stack)})
    title = "Where a web process spends the interpreter's time: orders with fresh keys"
    write_image(
        name="flame",
        title=title,
        tables=[_by_layer(busy, alone)],
        image="flame.svg",
        svg=draw(_drawn(busy), title=title, layer_of=layer_of, layers=LAYER_NAMES),
        note=(
            f"{SAMPLES_A_SECOND} samples a second, for {seconds} s each. With {BUSY_CALLERS} callers a thread "
            f"held the interpreter's lock in {busy.total()} of them; with one caller there was an order in "
            f"{alone.total()}, waiting for PostgreSQL and Redis included."
        ),
    )


def _record(pid: int, seconds: int, *, waiting: bool) -> Stacks:
    """Stack, outermost frame first -> how often it was seen.

    Raises:
        NotPermittedError: see the class.
    """
    beside_us = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if (program := shutil.which("py-spy", path=beside_us)) is None:
        raise NotPermittedError("py-spy is not installed.")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.txt"
        command = [
            *(program, "record", "--pid", str(pid), "--format", "raw", "--output", str(raw), "--nolineno"),
            *("--duration", str(seconds), "--rate", str(SAMPLES_A_SECOND), "--idle" if waiting else "--gil"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not raw.exists():
            said = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise NotPermittedError(
                f"py-spy could not look into the web process: {said} Where it may not: it needs ptrace, so "
                "run as root, or in a container with the capability SYS_PTRACE."
            )
        return _parsed(raw.read_text())


def _parsed(raw: str) -> Stacks:
    stacks: Stacks = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        stacks[tuple(map(_without_folders, stack.split(";")))] += int(count)
    return stacks


def _drawn(stacks: Stacks) -> Stacks:
    """Without what is the same on every stack: how a thread begins, and Django's wrappers."""
    drawn: Stacks = Counter()
    for stack, count in stacks.items():
        known = dropwhile(lambda frame: layer_of(frame) is None, stack)
        drawn[tuple(frame for frame in known if not frame.startswith(WRAPPERS))] += count
    return drawn


def _handles_request(stack: tuple[str, ...]) -> bool:
    return any(frame.startswith(REQUEST) for frame in stack)


def _without_folders(frame: str) -> str:
    """A file outside of every package comes with its whole path, which is this machine's business."""
    function, found, path = frame.partition(" (/")
    return f"{function} ({path.rpartition('/')[2]}" if found else frame


def layer_of(frame: str) -> str | None:
    """Of a frame like `execute (psycopg/cursor.py)`; None for the standard library's and others."""
    path = frame.rpartition(" (")[2]
    return next((layer for beginning, layer in LAYERS.items() if path.startswith(beginning)), None)


def _by_layer(busy: Stacks, alone: Stacks) -> Table:
    held, order = _shares(busy), _shares(alone)
    shown = sorted((*LAYER_NAMES, REST), key=lambda layer: -held.get(layer, 0))
    return Table(
        columns=("layer", "of the interpreter's time", "of an order's time, waiting included"),
        rows=[[layer, f"{held.get(layer, 0):.0%}", f"{order.get(layer, 0):.0%}"] for layer in shown],
    )


def _shares(stacks: Stacks) -> Mapping[str, float]:
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        counts[next(filter(None, map(layer_of, reversed(stack))), REST)] += count
    return {layer: count / stacks.total() for layer, count in counts.items()}
