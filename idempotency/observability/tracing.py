"""OpenTelemetry spans of keyed requests, where opentelemetry-api is installed. Nothing otherwise.

One span a request, `idempotency.protocol.exchange`, with the attributes `idempotency.mode`,
`idempotency.key_digest`, `idempotency.outcome` and `idempotency.subject`. The key itself is never among them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # optional: pip install 'payonce[tracing]'
    trace = None  # type: ignore[assignment]


class Span:
    """Span of one keyed request; does nothing without OpenTelemetry."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, **attributes: str) -> None:
        """Set attributes, their names prefixed with ``idempotency.``; empty ones are left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value:
                    self._span.set_attribute(f"idempotency.{name}", value)


@contextmanager
def span() -> Iterator[Span]:
    """Open the span of one keyed request, as the current one.

    An exception that passes makes it an error with the exception's name alone: messages may hold values.
    """
    # without an SDK nobody reads spans, and even an empty one has its cost
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield Span()
        return
    with trace.get_tracer("idempotency").start_as_current_span(
        "idempotency.protocol.exchange", record_exception=False, set_status_on_exception=False
    ) as started:
        try:
            yield Span(started)
        except Exception as error:
            started.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
