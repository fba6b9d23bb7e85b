"""The shop's addresses, and one whose view fails while it holds what nobody may read."""

from typing import Any

from django.conf import settings
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse
from django.urls import path

from payments import channels
from shop.urls import handler404, handler500, urlpatterns

__all__ = ["handler404", "handler500", "urlpatterns"]


def failing(request: HttpRequest) -> HttpResponse:
    """Fails with keys, the caller's headers and form in its variables."""
    fields, providers = settings.PAYMENT_CHANNELS, channels.current()
    told = [repr(provider) + repr(getattr(provider, "config", "")) for provider in providers.values()]
    body, headers = request.body, dict(request.headers)
    raise RuntimeError(f"nobody expected this: {told}, {len(fields)}, {len(body)}, {len(headers)}")


def log_statements(connection: Any, **kwargs: Any) -> None:
    """Django then logs every statement with its parameters, as it does with DEBUG on."""
    connection.force_debug_cursor = True


connection_created.connect(log_statements, weak=False)
urlpatterns = [path("failing", failing), *urlpatterns]  # the last of ours takes every address
