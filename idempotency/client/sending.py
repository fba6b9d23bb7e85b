"""Attempts of one request, without I/O: what both transports do between their sends."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom
from typing import TypedDict

import httpx

from idempotency.client.errors import BodyTooLarge, GaveUp
from idempotency.client.keystore import Keys, MemoryKeys, new_key
from idempotency.client.policy import Again, Final, Policy

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEY_HEADERS = ("Idempotency-Key", "Idempotency-Token")
_TIMEOUTS = ("connect", "read", "write", "pool")
# the system's source: processes forked from one parent would draw the same waits from a seeded one
_draw = SystemRandom().random


class Options(TypedDict, total=False):
    """Keyword arguments of both transports, as `Sender` takes them."""

    keys: Keys | None
    attempts_max: int
    wait_first_seconds: float
    wait_max_seconds: float
    deadline_seconds: float
    body_max_bytes: int
    random: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Sender(Policy):
    """Limits, keys and clocks that all requests of a transport share.

    Args:
        keys: store of the intents' keys; in this process's memory if None.
        body_max_bytes: the largest streamed body that is stored for a retry.
        random: draws from 0 up to 1.
        clock: seconds, monotonic.
        now: seconds since the epoch.
    """

    keys: Keys | None = None
    store: Keys = field(init=False)
    body_max_bytes: int = 10_000_000
    random: Callable[[], float] = _draw
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "store", MemoryKeys() if self.keys is None else self.keys)

    def body_of(self, request: httpx.Request) -> "Body | None":
        """Make a buffer for a streamed body, None if it can be sent again. Raises BodyTooLarge."""
        if isinstance(request.stream, httpx.ByteStream):
            return None
        body = Body(self.body_max_bytes)
        length = request.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            body.allow(int(length))
        return body

    def mark(self, request: httpx.Request) -> None:
        """Put a key on a request that has none; an intent's is on the disk when this returns.

        The request itself is changed, so that a redirect or a second round of authentication keeps the key.

        Raises:
            IntentBoundElsewhere: see `Keys.obtain`.
            TypeError: the intent is not a text, or empty.
        """
        intent = intent_of(request)
        if any(header in request.headers for header in _KEY_HEADERS):
            return
        # without the password that a URL may carry: this text is stored in a file and shown in an error
        target = f"{request.method} {request.url.copy_with(userinfo=b'', fragment=None)}"
        key = new_key() if intent is None else self.store.obtain(intent, target=target)
        request.headers["Idempotency-Key"] = key


class Body:
    """Buffer of a streamed body, `max_bytes` at most."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._content = bytearray()

    def add(self, part: bytes) -> None:
        """Add the next part; BodyTooLarge where there is more than allowed."""
        self.allow(len(self._content) + len(part))
        self._content += part

    def allow(self, size: int) -> None:
        if size > self._max_bytes:
            raise BodyTooLarge(
                f"The request body is a stream of more than {self._max_bytes} bytes, stored for a retry. "
                "Raise body_max_bytes, or pass the body as bytes. Nothing was sent."
            )

    def stream(self) -> httpx.ByteStream:
        return httpx.ByteStream(bytes(self._content))


class Sending:
    def __init__(self, sender: Sender, request: httpx.Request) -> None:
        self._sender = sender
        self._request = request
        self._extensions = request.extensions
        self._began = sender.clock()
        self._attempts = 0

    def begin_attempt(self) -> None:
        """Count an attempt, and let none of its time-outs reach beyond the deadline."""
        self._attempts += 1
        remaining = self._sender.remaining_seconds(self._elapsed_seconds())
        timeouts = self._extensions.get("timeout", {})
        given = {name: timeouts.get(name) for name in _TIMEOUTS}
        limited = {name: remaining if value is None else min(value, remaining) for name, value in given.items()}
        self._request.extensions = {**self._extensions, "timeout": limited}

    def must_be_in_time(self) -> None:
        """Raise ReadTimeout after the deadline; httpx limits each wait, not the whole answer."""
        if self._elapsed_seconds() >= self._sender.deadline_seconds:
            raise httpx.ReadTimeout("The answer is not whole at the deadline.", request=self._request)

    def end(self) -> None:
        """Restore the request's own time-outs; it may be sent once more, for a redirect say."""
        self._request.extensions = self._extensions

    def wait_after(self, outcome: httpx.Response | Exception) -> float | None:
        """Return the seconds to wait before the next attempt; None if the answer is the caller's.

        Args:
            outcome: the error, or the answer with a `ByteStream`, which is left unread.

        Raises:
            GaveUp: there is no next attempt.
            Exception: the outcome, if it is an error for the caller.
        """
        answer = self._copy(outcome) if isinstance(outcome, httpx.Response) else None
        decision = self._sender.after(
            outcome if answer is None else answer,
            attempt=self._attempts,
            elapsed_seconds=self._elapsed_seconds(),
            draw=self._sender.random(),
            now=self._sender.now(),
        )
        if isinstance(decision, Final):
            if isinstance(outcome, Exception):
                raise outcome
            return None
        if isinstance(decision, Again):
            return decision.wait_seconds
        header = next(header for header in _KEY_HEADERS if header in self._request.headers)
        raise GaveUp(
            decision.reason,
            header=header,
            key=self._request.headers[header],
            intent=intent_of(self._request),
            attempts=self._attempts,
            last_response=None if answer is None else _read(answer),
            request=self._request,
        ) from (outcome if isinstance(outcome, Exception) else None)

    def _copy(self, response: httpx.Response) -> httpx.Response:
        """Copy an answer and read the copy, so that the caller can still read the raw bytes."""
        return httpx.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=self._request
        )

    def _elapsed_seconds(self) -> float:
        return self._sender.clock() - self._began


def is_unsafe(request: httpx.Request) -> bool:
    """Return whether a request takes a key and retries; any other method passes as it is."""
    return request.method in _UNSAFE


def intent_of(request: httpx.Request) -> str | None:
    """Return the caller's name for the call, if any. Raises TypeError for no or empty text."""
    intent = request.extensions.get("intent")
    if intent is not None and not (isinstance(intent, str) and intent):
        raise TypeError(f"an intent is a text of one character or more, not {intent!r}")
    return intent


def _read(answer: httpx.Response) -> httpx.Response:
    try:
        answer.read()
    except httpx.DecodingError:
        # badly compressed: the caller gets the bytes as they came
        headers = [item for item in answer.headers.multi_items() if item[0].lower() != "content-encoding"]
        answer = httpx.Response(answer.status_code, headers=headers, stream=answer.stream, request=answer.request)
        answer.read()
    return answer
