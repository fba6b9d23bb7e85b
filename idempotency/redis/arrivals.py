"""Request log in Redis: each keyed call, in a capped stream that `redis.log_lines` reads.

A call only appends to a buffer of its process. A thread sends the buffer every `SEND_SECONDS`, so no answer waits
for the log. Lost with Redis, and what the buffer holds with the process.

Fields of a line: `at`, Unix seconds of its answer; `digest` of its key, `outcome`, `request` id, `address`; for a
call that has a content of its own `outline`, JSON.
"""

import json
import logging
import os
import time
from collections import deque
from functools import lru_cache
from typing import Any

from redis.exceptions import ResponseError

from idempotency.observability.background import NEVER, Watchdog, Worker
from idempotency.redis.connection import connection_of
from idempotency.redis.fastpath import attempt
from idempotency.request.outline import CONTENT_MAX, outline

log = logging.getLogger(__name__)

SEND_SECONDS = 0.2
BUFFER_MAX = 2_000  # lines that a process holds; the oldest go first
AT_ONCE = 256  # lines: calls wait for the interpreter while they are made
STREAM_MAX = 50_000  # lines: about 15 MB of usual ones, 200 MB of the longest
STREAM_SECONDS = 604_800  # a stream of an earlier epoch goes away by itself
ADDRESS_MAX = 45  # characters of an IPv6 address

# all others repeat the content of the call that the key belongs to, or their key belongs to none
_WITH_CONTENT = frozenset({"executed", "refused", "uncertain", "reused"})


_encoder = json.JSONEncoder(ensure_ascii=False)  # made once: `json.dumps` would make one a line

Noted = tuple[float, str, str, str, str, bytes]  # at, digest, outcome, request id, address, content


class Recorder:
    """Buffer of a process, and the thread that sends it."""

    def __init__(self) -> None:
        self._buffer: deque[tuple[str, Noted]] = deque(maxlen=BUFFER_MAX)
        self._due_at = NEVER
        self._watchdog = Watchdog(
            "idempotency-request-log", next_due=lambda: self._due_at, work=self._send, ended=self._send
        )

    def add(self, stream: str, line: Noted) -> None:
        self._buffer.append((stream, line))
        if self._due_at == NEVER:
            self._due_at = time.monotonic() + SEND_SECONDS
            try:
                self._watchdog.stir()
            except RuntimeError:  # there are too many threads: the next call tries again
                self._due_at = NEVER

    def _send(self, worker: Worker | None = None) -> None:
        self._due_at = NEVER  # first: a call that comes from now on asks for the next round
        by_stream: dict[str, list[tuple[Any, ...]]] = {}
        while self._buffer:
            try:
                name, line = self._buffer.popleft()
            except IndexError:  # the thread of before, at its end, took the last one
                break
            commands = by_stream.setdefault(name, [])
            commands.append(("XADD", name, "MAXLEN", "~", STREAM_MAX, "*", *_fields(line)))
            if len(commands) == AT_ONCE:
                _send_all(name, by_stream.pop(name))
        for name, commands in by_stream.items():
            _send_all(name, commands)


def note(*, marker: str, digest: str, outcome: str, request_id: str, address: str, content: bytes) -> None:
    """Log a call by its marker's name, without waiting. Lost where Redis is away."""
    if marker and outcome:
        own = content[:CONTENT_MAX] if outcome in _WITH_CONTENT else b""
        prefix = marker.removesuffix(f":key:{{{digest}}}")
        _recorder.add(stream_of(prefix), (time.time(), digest, outcome, request_id, address[:ADDRESS_MAX], own))


@lru_cache(maxsize=64)
def stream_of(prefix: str) -> str:
    return f"{prefix}:request-log"


def _fields(line: Noted) -> list[str]:
    at, digest, outcome, request_id, address, content = line
    fields = ["at", f"{at:.6f}", "digest", digest, "outcome", outcome, "request", request_id, "address", address]
    if not content:
        return fields
    return [*fields, "outline", _encoder.encode(outline(content, digest=digest))]


def _send_all(name: str, commands: list[tuple[Any, ...]]) -> None:
    def send(redis: Any) -> None:
        try:
            connection_of(redis).send_together(*commands, ("EXPIRE", name, STREAM_SECONDS), wait=True)
        # a server without streams, say, serves markers all the same: no breaker opens
        except ResponseError as error:
            log.info("Redis refused lines of the request log: %s", error)

    attempt(send)


def _begin() -> None:
    global _recorder  # noqa: PLW0603  the calls of the parent are not a forked child's
    _recorder = Recorder()


_recorder = Recorder()
os.register_at_fork(after_in_child=_begin)
