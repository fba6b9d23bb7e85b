"""Prometheus metrics (docs/reference/metrics.md); none without prometheus-client.

Counters live in the process that counted; the gauges of `LedgerCollector` are read from the ledger at each scrape.
"""

import logging
from collections.abc import Iterator
from typing import Any

from django.db import Error as DatabaseError

from idempotency.extras import needed

try:
    import prometheus_client
    from prometheus_client.core import GaugeMetricFamily
except ImportError:  # optional: pip install 'payonce[metrics]'
    prometheus_client = None  # type: ignore[assignment]

log = logging.getLogger("idempotency")


class _Silent:
    """Counter that counts nothing."""

    def labels(self, *_: str, **__: str) -> "_Silent":
        return self

    def inc(self, amount: float = 1) -> None: ...


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:
    return _Silent() if prometheus_client is None else prometheus_client.Counter(name, text, labels)


requests = _counter(
    "idempotency_requests",
    "Keyed requests by how they ended: executed, refused, not_stored, failed, uncertain, replayed, unkeyed.",
    ("mode", "outcome"),
)
replays = _counter("idempotency_replays", "Stored answers given again, by where they were found.", ("source",))
conflicts = _counter(
    "idempotency_conflicts",
    "Keyed requests that got no answer of their own: in_progress, reused, expired, lost_race, lost_lease.",
    ("kind",),
)
redis_failures = _counter("idempotency_redis_failures", "Redis commands that failed; each opens the breaker.")
repeats = _counter(
    "idempotency_repeats", "Atomic calls run again, by reason: deadlock, serialization.", ("reason",)
)
reaped = _counter("idempotency_reaped", "What the reaper removed, by kind.", ("what",))
background_failures = _counter(
    "idempotency_background_failures", "What background threads met and went on after, by thread.", ("thread",)
)
webhooks = _counter("idempotency_webhooks", "Webhook requests by what became of them.", ("sender", "result"))
resumed = _counter("idempotency_resumed", "Stalled entries that the completer ran again, by result.", ("result",))


class LedgerCollector:
    """Gauges of unfinished entries and of the last reaping, by two small SQL statements.

    Register it once a process: ``prometheus_client.REGISTRY.register(LedgerCollector())``.
    """

    def __init__(self) -> None:
        with needed("metrics", by="LedgerCollector"):
            import prometheus_client  # noqa: F401, PLC0415

    def describe(self) -> list[Any]:
        """Return nothing: registration is too early for a database query."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the gauges; none while the database is away, so that counters still show."""
        from idempotency.observability.statistics import (  # noqa: PLC0415  models are not ready when this is imported
            open_entries,
            seconds_since_reaping,
        )

        try:
            found, reaped = open_entries(), seconds_since_reaping()
        except DatabaseError as error:
            log.warning("The ledger's gauges are left out of the metrics: %s", error)
            return
        count = GaugeMetricFamily(
            "idempotency_open_entries", "Ledger entries without a final answer, by state.", labels=["state"]
        )
        age = GaugeMetricFamily(
            "idempotency_open_age_seconds", "Age of the oldest of them, in seconds.", labels=["state"]
        )
        for state in found:
            count.add_metric([state.name], state.count)
            age.add_metric([state.name], state.oldest_seconds)
        yield count
        yield age
        if reaped is not None:
            yield GaugeMetricFamily(
                "idempotency_reaping_age_seconds", "Age of the last reaping, in seconds.", value=reaped
            )
