"""Values for the log lines of a keyed request: request id, digest of the key, subject. Never the key.

`bind` puts them in the context of the running request; `ContextFilter` adds them to every record of any logger,
for any formatter.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
    """Return the bound values."""
    return _bound.get() or {}


class ContextFilter(logging.Filter):
    """Filter that gives every record the bound values as attributes, and drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in bound().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
