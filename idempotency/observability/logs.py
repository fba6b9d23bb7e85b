"""Log lines and spans of a keyed request: request id, key digest, subject; no key.

`bind` puts them in the context of the running request; `ContextFilter` adds them to every record of any logger,
for any formatter.

A span of OpenTelemetry, where opentelemetry-api is installed, is one a request, `idempotency.protocol.exchange`,
with the attributes `idempotency.mode`, `idempotency.key_digest`, `idempotency.outcome` and `idempotency.subject`.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from idempotency.errors import Problem

try:
    from opentelemetry import trace
except ImportError:  # optional: pip install 'payonce[tracing]'
    trace = None  # type: ignore[assignment]

_bound: ContextVar[dict[str, str] | None] = ContextVar("idempotency_logs", default=None)


def bind(**values: str) -> None:
    """Add values to the lines of this request (`request_id`, `key_digest`, `subject`)."""
    _bound.set({**(_bound.get() or {}), **values})


def unbind() -> None:
    """Forget all values; at the beginning of a request, because threads are reused."""
    _bound.set(None)


@contextmanager
def restored() -> Iterator[None]:
    """Forget what is bound inside the block."""
    token = _bound.set(_bound.get())
    try:
        yield
    finally:
        _bound.reset(token)


def bound() -> dict[str, str]:
    return _bound.get() or {}


class ContextFilter(logging.Filter):
    """Filter that gives every record the bound values as attributes, and drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in bound().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


_NO_SPAN = nullcontext()


def span() -> AbstractContextManager[Any]:
    """Open the span of one keyed request; None without an SDK, as nobody would read it.

    An exception that passes makes it an error with the exception's name alone: messages may hold values.
    """
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _NO_SPAN
    return _recorded()


@contextmanager
def _recorded() -> Iterator[Any]:
    with trace.get_tracer("idempotency").start_as_current_span(
        "idempotency.protocol.exchange", record_exception=False, set_status_on_exception=False
    ) as started:
        try:
            yield started
        except Exception as error:
            if not isinstance(error, Problem) or error.status >= 500:  # another one is the caller's fault
                started.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
