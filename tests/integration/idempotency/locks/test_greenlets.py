"""Locks under gevent, whose greenlets are threads that Python did not start."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.idempotency.locks.conftest import a_bench

PROGRAM = """
from gevent import monkey, sleep, spawn

monkey.patch_all()

import sys

import redis

from idempotency.locks import Lock
from idempotency.locks.engine import holds, places

places.LEASE_SECONDS = 0.5  # soon over
lock = Lock("thing", client=redis.Redis.from_url(sys.argv[1]))
assert spawn(lock.acquire).get() is True  # and ends without a release
places.LEASE_SECONDS, holds.RENEW_AFTER = 30.0, 0.01  # for the watchdog to prolong


def hold():
    assert lock.acquire(wait_seconds=20) is True
    waiting = spawn(lock.acquire, wait_seconds=20)
    for _ in range(3):  # a greenlet that lives is renewed
        before = lock._hold().ends_at
        while lock._hold().ends_at <= before:
            sleep(0.01)
    assert lock.held
    lock.release()
    return waiting.get()


assert spawn(hold).get() is True
print("done")
"""


def test_a_greenlet_that_ended_holds_nothing(servers: Callable[[str], Any]) -> None:
    with a_bench("Redis", servers("Redis"), tasks=False) as desk:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, desk.servers.url],
            cwd=Path(__file__).parents[4],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)
