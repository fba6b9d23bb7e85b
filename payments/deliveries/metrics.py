"""Gauges of what is not delivered, read from the rows at each scrape."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from django.db import Error as DatabaseError
from django.db.models import Count, Min
from django.db.models.functions import Now
from prometheus_client.core import GaugeMetricFamily

from payments.conf import config
from payments.models import Delivery
from payments.models.event import OPEN

log = logging.getLogger(__name__)


class DeliveryCollector:
    """By endpoint: age of the oldest undelivered decision, number of those given up.

    Register it once a process: ``prometheus_client.REGISTRY.register(DeliveryCollector())``.
    """

    def describe(self) -> list[Any]:
        """Return nothing: registration is too early for a database query."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the gauges; none while the database is away."""
        rows = Delivery.objects.order_by().values_list("endpoint")
        waiting = rows.filter(status__in=OPEN).annotate(age=Now() - Min("created_at"))
        failed = rows.filter(status=Delivery.Status.FAILED, endpoint__in=config().webhooks)
        try:
            ages = [(endpoint, age.total_seconds()) for endpoint, age in waiting]
            given_up = list(failed.annotate(count=Count("pk")))
        except DatabaseError as error:
            log.warning("The gauges of deliveries are left out of the metrics: %s", error)
            return
        yield _gauge("payonce_undelivered_age_seconds", "Age of the oldest undelivered decision.", ages)
        yield _gauge("payonce_deliveries_given_up", "Decisions that were given up undelivered.", given_up)


def _gauge(name: str, about: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, about, labels=["endpoint"])
    for endpoint, value in values:
        gauge.add_metric([endpoint], value)
    return gauge
