"""The shop's addresses, and one whose view fails while it holds what nobody may read."""

from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse
from django.urls import path

from payments.channels import configured as channels
from shop.urls import handler404, handler500, urlpatterns

__all__ = ["handler404", "handler500", "urlpatterns"]


def failing(request: HttpRequest) -> HttpResponse:
    """Fails with keys, the caller's headers and form in its variables."""
    fields, providers = settings.PAYMENTS["PROVIDERS"], channels.current()
    said = [repr(provider) + repr(getattr(provider, "config", "")) for provider in providers.values()]
    body, headers = request.body, dict(request.headers)
    raise RuntimeError(f"nobody expected this: {said}, {len(fields)}, {len(body)}, {len(headers)}")


def refused(request: HttpRequest) -> HttpResponse:
    """Fails with an error of PostgreSQL whose details have a value."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE planted (value text UNIQUE)")
        cursor.execute("INSERT INTO planted VALUES (%s), (%s)", [request.headers["X-Planted"]] * 2)
    raise AssertionError("PostgreSQL took it")


def log_statements(connection: Any, **kwargs: Any) -> None:
    """Django then logs every statement with its parameters, as it does with DEBUG on."""
    connection.force_debug_cursor = True


connection_created.connect(log_statements, weak=False)
urlpatterns = [
    path("failing", failing),
    path("refused", refused),
    *urlpatterns,
]  # the last of ours takes every address
