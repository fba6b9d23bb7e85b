"""Errors of the client, beside httpx's own."""

from typing import Any

import httpx


class GaveUp(httpx.TransportError):
    """No final answer came: the effect may have happened once, or not at all.

    `__cause__` is the error of the last attempt, if it ended in one.

    Args:
        reason: for making no further attempt.
        header: the header that carried the key, `Idempotency-Key` or `Idempotency-Token`.
        key: the header's value as it was sent, quotes included; send it again as it is.
        intent: the caller's name for the call, None if there was none.
        attempts: their number.
        last_response: the answer to the last attempt, its body read; None if the attempt ended in an error.
        request: the request that was sent.
    """

    def __init__(
        self,
        reason: str,
        *,
        header: str,
        key: str,
        intent: str | None,
        attempts: int,
        last_response: httpx.Response | None,
        request: httpx.Request,
    ) -> None:
        how = f"the same intent {intent!r}" if intent is not None else f"the same key, {header}: {key}"
        super().__init__(
            f"Gave up after {attempts} attempt(s), {reason}. The outcome is unknown: it may have happened. "
            f"Retry with {'the same key, by ' if intent is not None else ''}{how}.",
            request=request,
        )
        self.header = header
        self.key = key
        self.intent = intent
        self.attempts = attempts
        self.last_response = last_response

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it: a worker's error that cannot be unpickled breaks its whole process pool."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[GaveUp], args: tuple[Any, ...]) -> GaveUp:
    return kind.__new__(kind, *args)


class IntentBoundElsewhere(ValueError):
    """The intent's key belongs to another method or URL; nothing was sent."""


class BodyTooLarge(ValueError):
    """The body is a stream, to be stored for a retry, and larger than `body_max_bytes`."""
