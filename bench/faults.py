"""Three faults, each on its own keys: how many a server did twice, how many never.

Copies of a request at the same moment, a worker killed right after the business commit, Redis emptied before the
retry. They go to the path of a variant of `bench.plain`.
"""

import http.client
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from bench.servers import Server
from bench.variants import KEY, Variant

COPIES = 4
RETRY_SECONDS = 10.0
PAUSE_SECONDS = 0.1
RETRIERS = 10
BROKEN = 0


def befall(server: Server, variants: Sequence[Variant], *counts: int) -> dict[Variant, list[str]]:
    """Try the faults on the variants of one server, one after the other.

    Args:
        counts: keys raced, keys whose worker is killed, keys that Redis forgets. A key of a kill counts only if
            its row was committed: an earlier end says nothing about the time after it.

    Returns:
        Variant -> "keys done twice of keys" for each fault.
    """
    cells = {}
    for variant in variants:
        target = _Target(server, variant)
        faults = (target.race, target.kill, target.lose_redis)
        cells[variant] = [fault(count) for fault, count in zip(faults, counts, strict=True)]
        print(f"keyed: {variant.title}: {'; '.join(cells[variant])} twice", flush=True)
    return cells


class _Target:
    """One path of a server. Each fault returns the cell of its column."""

    def __init__(self, server: Server, variant: Variant) -> None:
        self._server = server
        self._variant = variant

    def race(self, count: int) -> str:
        """Send `COPIES` of each key together, each on a connection of its own."""
        keys = _new_keys(count)
        barrier = threading.Barrier(COPIES)

        def copy(_: int) -> None:
            for key in keys:
                barrier.wait()
                self._post(key)

        _for_each(copy, range(COPIES), threads=COPIES)
        return self._cell(keys)

    def kill(self, count: int) -> str:
        """End the worker of each key's first call by SIGKILL right after the commit; then retry."""
        keys = _new_keys(count)
        for key in keys:
            self._post(key, {"X-Die": "after-commit"})
        committed = self._server.rows()
        return self._retried([key for key in keys if key in committed])

    def lose_redis(self, count: int) -> str:
        """Get an answer for each key, empty Redis, send each key again."""
        keys = [key for key in _new_keys(count) if _is_good(self._post(key))]
        with redis.Redis.from_url(self._server.redis_url) as client:
            client.flushdb()
        return self._retried(keys)

    def _retried(self, keys: Sequence[str]) -> str:
        answered = _for_each(self._retry, keys, threads=RETRIERS)
        return self._cell(keys, stuck=answered.count(False))

    def _cell(self, keys: Sequence[str], *, stuck: int = 0) -> str:
        rows = self._server.rows()
        twice, lost = sum(rows.get(key, 0) > 1 for key in keys), sum(key not in rows for key in keys)
        parts = [f"{twice} of {len(keys)}", *([f"{lost} without a row"] if lost else [])]
        return ", ".join([*parts, *([f"{stuck} stuck"] if stuck else [])])

    def _retry(self, key: str) -> bool:
        deadline = time.monotonic() + RETRY_SECONDS
        while not _is_good(self._post(key)):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def _post(self, key: str, extra: Mapping[str, str] | None = None) -> int:
        """Return the status; `BROKEN` if the connection ended without one."""
        headers = {name: value.replace(KEY, key) for name, value in self._variant.headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=15)
        try:
            body = self._variant.body.replace(KEY, key)
            connection.request("POST", self._variant.path, body=body, headers={**headers, **(extra or {})})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return BROKEN
        finally:
            connection.close()


def _new_keys(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def _is_good(status: int) -> bool:
    return 200 <= status < 300


def _for_each(work: Callable[..., object], items: Sequence[object], *, threads: int) -> list[object]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
