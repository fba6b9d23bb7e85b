"""What a log line of a keyed request carries: request id, digest of the key, what it is about. Never the key.

`bind` puts it in the context of the running request; `ContextFilter` adds it to every record of any logger, so it
works with whatever formatter a project uses.
"""

import logging
from contextvars import ContextVar

_bound: ContextVar[dict[str, str] | None] = ContextVar("idempotency_logs", default=None)


def bind(**values: str) -> None:
    """Add values to the lines of this request (`request_id`, `key_digest`, `subject`)."""
    _bound.set({**(_bound.get() or {}), **values})


def unbind() -> None:
    """Forget all of them; at the beginning of a request, because threads are used again."""
    _bound.set(None)


def bound() -> dict[str, str]:
    """What is bound now."""
    return _bound.get() or {}


class ContextFilter(logging.Filter):
    """Gives every record the bound values as attributes; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in bound().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
