"""What is left in the database after the faults that keys are for: ours and the peers', counted row by row.

Three faults, each on keys of its own: copies of a request that come at the same moment; a worker that is killed
after the business transaction has committed; Redis that has lost everything between an answer and its retry.
"""

import argparse
import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from bench import servers
from bench.peer_venvs import PeerUnavailableError, version_of
from bench.report import write
from bench.servers import Server
from bench.variants import BARE, OURS, PEERS, Variant

COPIES = 4
RACED_KEYS = 500
FAULT_KEYS = 50
RETRY_SECONDS = 10.0
PAUSE_SECONDS = 0.25
RETRIERS = 10
BROKEN = 0
COLUMNS = (
    "variant",
    "raced: keys with a second row",
    "raced: keys without a row",
    "killed: workers killed",
    "killed: second rows",
    "killed: stuck",
    "Redis lost: second rows",
    "Redis lost: stuck",
)
# replays repeat the fresh variants; the bare view shows that the faults happen
VARIANTS = (BARE, *(variant for variant in OURS if not variant.replays), *PEERS)


def run(arguments: Sequence[str] = ()) -> None:
    """Count, and write bench/results/peer_faults.md."""
    parser = argparse.ArgumentParser(prog="python -m bench peer_faults")
    parser.add_argument("--raced", type=int, default=RACED_KEYS, help="keys that are sent four times at once")
    parser.add_argument("--keys", type=int, default=FAULT_KEYS, help="keys of each of the other faults")
    given = parser.parse_args(arguments)
    servers.require_own_redis()
    rows = []
    with servers.guarded() as guardian:
        for number, variant in enumerate(VARIANTS):
            title = variant.title
            try:
                server = servers.start(variant, guardian, redis_database=number)
            except PeerUnavailableError as error:
                if variant.peer is None:
                    raise
                rows.append([title, str(error), *[""] * (len(COLUMNS) - 2)])
                continue
            if variant.peer is not None:
                title += f" ({version_of(variant.peer)})"
            faults = _Faults(server, variant)
            counts = [*faults.race(given.raced), *faults.kill(given.keys), *faults.lose_redis(given.keys)]
            rows.append([title, *counts])
            servers.stop(server, guardian)
            print(f"peer_faults: {variant.title}: {', '.join(counts)}", flush=True)
    write(
        name="peer_faults",
        title="Rows after faults: ours and the peers'",
        columns=COLUMNS,
        rows=rows,
        bars=None,
        note=_note(given.raced, given.keys),
    )


class _Faults:
    """The three faults, on one server. Each answers the cells of its columns."""

    def __init__(self, server: Server, variant: Variant) -> None:
        self._server = server
        self._path = variant.path

    def race(self, count: int) -> list[str]:
        """`COPIES` of each key start together, each on a connection of its own."""
        keys = [str(uuid.uuid4()) for _ in range(count)]
        barrier = threading.Barrier(COPIES)

        def copy() -> None:
            for key in keys:
                barrier.wait()
                self._post(key)

        _together([copy] * COPIES)
        rows = self._server.rows()
        seconds = sum(rows.get(key, 0) > 1 for key in keys)
        return [f"{seconds} of {count}", str(sum(key not in rows for key in keys))]

    def kill(self, count: int) -> list[str]:
        """Each key's first call ends its worker by SIGKILL right after the commit; then it is retried."""
        keys = [str(uuid.uuid4()) for _ in range(count)]
        for key in keys:
            self._post(key, {"X-Die": "after-commit"})
        committed = self._server.rows()
        # a call that did not get as far as its row says nothing about what happens after it
        keys = [key for key in keys if key in committed]
        seconds, stuck = self._retried(keys)
        return [f"{len(keys)} of {count}", seconds, stuck]

    def lose_redis(self, count: int) -> list[str]:
        """Each key is answered, Redis is emptied, and each key is sent again."""
        keys = [key for key in (str(uuid.uuid4()) for _ in range(count)) if self._post(key) < 300]
        with redis.Redis.from_url(self._server.redis_url) as client:
            client.flushall()
        return list(self._retried(keys))

    def _retried(self, keys: Sequence[str]) -> tuple[str, str]:
        """(keys with a second row, keys without a good answer) after every key was retried."""
        with ThreadPoolExecutor(RETRIERS) as pool:
            answered = list(pool.map(self._retry, keys))
        rows = self._server.rows()
        return str(sum(rows.get(key, 0) > 1 for key in keys)), str(answered.count(False))

    def _retry(self, key: str) -> bool:
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            if 200 <= self._post(key) < 300:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)

    def _post(self, key: str, extra: dict[str, str] | None = None) -> int:
        """The status; `BROKEN` if the connection ended without one."""
        headers = {"X-User": "1", "Content-Type": "application/json", "Idempotency-Key": key, **(extra or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=15)
        try:
            body = json.dumps({"reference": key, "amount": 1990})
            connection.request("POST", self._path, body=body, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return BROKEN
        finally:
            connection.close()


def _together(jobs: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def _note(raced: int, keys: int) -> str:
    return (
        f"Raced: {raced} keys, {COPIES} copies of each at once, over {servers.WORKERS} workers. "
        f"Killed: {keys} keys whose worker gets SIGKILL right after the business commit, then retries for "
        f"{RETRY_SECONDS:.0f} s; stuck: still no 2xx. "
        f"Redis lost: {keys} keys, FLUSHALL between answer and retry. "
        "Every lock or lease that has a time holds 3 s: a longer one only puts off what the retry finds. "
        "Our phased handler looks for its row when it is resumed, as its mode asks. "
        "drf-idempotencykey's shortest time is a minute and stays at its default of 60."
    )
