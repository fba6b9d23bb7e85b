"""Ends of deliveries without an answer: of removed endpoints, and of rows that are past their time."""

from datetime import timedelta

from django.utils import timezone

from idempotency.conf import config as idempotency
from idempotency.ids import first_id
from idempotency.postgres.statements import Statement, send
from payments.conf import config
from payments.deliveries import queries
from payments.models import Delivery

GONE = "given up: there is no such endpoint any more"


def drop(*, limit: int) -> int:
    """Forget up to `limit` deliveries that ended ``TOMBSTONE_SECONDS`` ago, but a payment's last to an endpoint.

    First, what waits for a removed endpoint is given up when its time is over: until then the endpoint may only
    be missing in the settings of this process.
    """
    seconds = idempotency().tombstone_seconds
    before = first_id(timezone.now() - timedelta(seconds=seconds))
    ending = Statement(queries.END, [GONE, list(config().webhooks)])
    return len(send(ending, Statement(queries.DROP, [before, seconds, limit]))[1])


def orphaned() -> list[str]:
    """Name the endpoints that deliveries wait for and the settings lack."""
    waiting = Delivery.objects.filter(status__in=[Delivery.Status.WAITING, Delivery.Status.SENDING])
    lacking = waiting.exclude(endpoint__in=[*config().webhooks]).order_by("endpoint")
    return list(lacking.values_list("endpoint", flat=True).distinct())
