"""Gauge of what waits to be delivered, read from the rows at each scrape."""

import logging
from collections.abc import Iterator
from typing import Any

from django.db import Error as DatabaseError
from prometheus_client.core import GaugeMetricFamily

from payments.deliveries import sending

log = logging.getLogger(__name__)


class DeliveryCollector:
    """Age of the oldest undelivered decision, by endpoint.

    Register it once a process: ``prometheus_client.REGISTRY.register(DeliveryCollector())``.
    """

    def describe(self) -> list[Any]:
        """Return nothing: registration is too early for a database query."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the gauge; none while the database is away."""
        try:
            found = sending.oldest_seconds()
        except DatabaseError as error:
            log.warning("The gauge of deliveries is left out of the metrics: %s", error)
            return
        age = GaugeMetricFamily(
            "payonce_undelivered_age_seconds", "Age of the oldest undelivered decision.", labels=["endpoint"]
        )
        for name, seconds in found.items():
            age.add_metric([name], seconds)
        yield age
