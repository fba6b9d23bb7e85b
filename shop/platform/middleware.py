"""Middleware of every request: id, probes, bodies, languages and headers."""

import contextlib
import io
import re
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers

from idempotency.errors import Problem, malformed, payload_too_large, problem_response
from idempotency.middleware import problem_of
from idempotency.observability import logs
from idempotency.postgres.availability import outage
from idempotency.request.keys import content_length
from payments.api.views import webhook
from payments.providers import registry
from shop.platform import fallbacks, health

DRAIN_MAX_BYTES = 4 * 1024 * 1024  # of an unread body; after a longer one the connection ends
WEBHOOKS = {
    f"/webhooks/{account}": partial(webhook, account=account)
    for account in {*registry.names(), *settings.PAYMENTS["PROVIDERS"]}
}
PROBES = {"/healthz": health.healthz, "/readyz": health.readyz, "/metrics": health.metrics}

# harmless to log
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")

# no page of ours uses these, so nothing that gets into one can; the provider's own page takes the payment.
# Source: W3C, "Permissions Policy" (read 2026-11)
_UNUSED_FEATURES = (
    "accelerometer",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "usb",
)
PERMISSIONS_POLICY = ", ".join(f"{feature}=()" for feature in _UNUSED_FEATURES)


class Middleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response


class RequestIdMiddleware(Middleware):
    """Give every request an id that its answer, errors and log lines share.

    Takes `X-Request-Id` from the caller where it is harmless to log, else makes one.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        logs.unbind()
        logs.bind(request_id=request_id)
        response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class ProbesMiddleware(Middleware):
    """Answer load balancers and Prometheus, which ask by address, not by `ALLOWED_HOSTS`."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path) if getattr(request, "is_readable", True) else None
        return (probe or self.get_response)(request)


class HeadersMiddleware(Middleware):
    """Deny pages the device's sensors; keep the API's answers, problems too, out of caches."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response["Permissions-Policy"] = PERMISSIONS_POLICY
        if request.path_info.startswith("/api/v1/"):
            response.headers.setdefault("Cache-Control", "no-store")
            patch_vary_headers(response, ("Authorization",))
        return response


class BodyMiddleware(Middleware):
    """Check and drain bodies.

    Refuses a Content-Type that cannot be read (see `shop.platform.handlers`). Gives a chunked body its length, up
    to the limit of all bodies: Django and REST framework take one without Content-Length for empty. A WSGI server
    that ends the stream with the body says so (`wsgi.input_terminated`); behind ASGI the body is read already.

    Refuses an upload above that limit: Django counts fields alone, and would write a stranger's files of any size
    to the disk, for the form's token.

    Drains an unread body: a server ends the connection after a large one, and a keep-alive caller would lose the
    next request on it, which is the retry.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase
        problem = _measure(request) if getattr(request, "is_readable", True) else malformed()
        if problem is None:
            response = self.get_response(request)
        else:
            # before `LocaleMiddleware`: the caller's language, not the one of this thread's last request
            translation.activate(translation.get_language_from_request(request))
            response = fallbacks.bad_request(request, problem)
        _drain(request)
        return response


def _measure(request: Any) -> Problem | None:
    """Read a chunked body and set its length; the refusal if it is too long or broken."""
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if request.content_type == "multipart/form-data" and content_length(request) > most:
        return payload_too_large()
    if "HTTP_TRANSFER_ENCODING" not in request.META or request.META.get("CONTENT_LENGTH"):
        return None
    stream = request._stream
    if isinstance(request, WSGIRequest):
        if not request.META.get("wsgi.input_terminated"):
            return None  # a read would wait for ever
        stream = request.META["wsgi.input"]
    try:
        body = stream.read(most + 1)
    except Exception:  # each server has its own for a broken chunk, and for a caller that went away
        return malformed()
    if len(body) > most:
        return payload_too_large()
    request.META["CONTENT_LENGTH"] = str(len(body))
    request._stream = io.BytesIO(body)
    return None


def _drain(request: HttpRequest) -> None:
    left = DRAIN_MAX_BYTES if isinstance(request, WSGIRequest) and request.META.get("wsgi.input_terminated") else 0
    with contextlib.suppress(Exception):  # each server has its own for a caller that went away
        while left > 0 and (part := request.META["wsgi.input"].read(65_536)):
            left -= len(part)


class WebhooksMiddleware(Middleware):
    """Hand a notification to its view, past sessions, forms, languages and messages.

    A signature is all the login that a provider has. The rest was a sixth of the cost of a repeated notification.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = WEBHOOKS.get(request.path_info)
        if view is None:
            return self.get_response(request)
        request.get_host()  # refuses a foreign one
        translation.activate("en")  # not the language of this thread's last shopper
        try:
            response: HttpResponse = view(request)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            response = problem_response(problem, request)
        response.headers.setdefault("Content-Length", str(len(response.content)))
        return response


class QueryMiddleware(Middleware):
    """Refuse NUL in a query string with 400: no text of PostgreSQL holds it."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "%00" in request.META.get("QUERY_STRING", ""):
            return fallbacks.bad_request(request, malformed())  # raised, `DEBUG` would show its own page
        return self.get_response(request)


class DatabaseAwayMiddleware(Middleware):
    """Show a shopper a page, no problem document, while the database is away; stands last."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        away = outage(exception)
        return None if away is None else fallbacks.database_away(request, away)
