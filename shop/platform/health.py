"""Probes that a load balancer and Prometheus read: alive, ready, numbers. No login."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from idempotency.postgres.availability import outage
from idempotency.redis import fastpath


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the process answers at all; touches no store."""
    return JsonResponse({"status": "alive"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when PostgreSQL answers, else 503.

    Shows a Redis that is away, which does not make the instance unready: everything works on the ledger alone.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        outage(error)  # logs the reason
        return JsonResponse({"status": "unready", "postgresql": False}, status=503, headers={"Retry-After": "1"})
    return JsonResponse({"status": "ready", "postgresql": True, "redis": fastpath.takes_writes()})


def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
