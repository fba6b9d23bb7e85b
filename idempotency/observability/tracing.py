"""OpenTelemetry spans of keyed requests, where opentelemetry-api is installed. Nothing otherwise.

One span a request, `idempotency.protocol.exchange`, with the attributes `idempotency.mode`,
`idempotency.key_digest`, `idempotency.outcome` and `idempotency.subject`. The key itself is never among them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # optional: pip install 'payonce[tracing]'
    trace = None  # type: ignore[assignment]


_NO_SPAN = nullcontext()


class Span:
    """Span of one keyed request."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, **attributes: str) -> None:
        """Set attributes, their names prefixed with ``idempotency.``; empty ones are left out."""
        for name, value in attributes.items():
            if value:
                self._span.set_attribute(f"idempotency.{name}", value)


def span() -> AbstractContextManager[Span | None]:
    """Open the span of one keyed request, as the current one; None without an SDK, as nobody would read it.

    An exception that passes makes it an error with the exception's name alone: messages may hold values.
    """
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _NO_SPAN
    return _recorded()


@contextmanager
def _recorded() -> Iterator[Span]:
    with trace.get_tracer("idempotency").start_as_current_span(
        "idempotency.protocol.exchange", record_exception=False, set_status_on_exception=False
    ) as started:
        try:
            yield Span(started)
        except Exception as error:
            started.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
