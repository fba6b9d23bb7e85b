"""Gauges of what is not delivered, read from the rows at each scrape."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import Error as DatabaseError
from prometheus_client.core import GaugeMetricFamily

from payments.deliveries import sending

log = logging.getLogger(__name__)


class DeliveryCollector:
    """Age of the oldest undelivered decision, and number of those that were given up, by endpoint.

    Register it once a process: ``prometheus_client.REGISTRY.register(DeliveryCollector())``.
    """

    def describe(self) -> list[Any]:
        """Return nothing: registration is too early for a database query."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the gauges; none while the database is away."""
        try:
            ages, given_up = sending.undelivered()
        except DatabaseError as error:
            log.warning("The gauges of deliveries are left out of the metrics: %s", error)
            return
        yield _gauge("payonce_undelivered_age_seconds", "Age of the oldest undelivered decision.", ages)
        yield _gauge("payonce_deliveries_given_up", "Decisions that were given up undelivered.", given_up)


def _gauge(name: str, about: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, about, labels=["endpoint"])
    for endpoint, value in values.items():
        gauge.add_metric([endpoint], value)
    return gauge
