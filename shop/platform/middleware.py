"""What stands before everything else: probes of machines, an id for every request, the length of bodies in chunks,
what no page of ours needs.
"""

import contextlib
import io
import re
import uuid
from collections.abc import Callable
from typing import Any

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.contrib.messages.middleware import MessageMiddleware
from django.core.exceptions import BadRequest
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.locale import LocaleMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers

from idempotency.errors import Problem, malformed, payload_too_large, problem_response
from idempotency.middleware import problem_of
from idempotency.observability import logs
from idempotency.postgres.availability import outage
from payments.urls import webhook_urlpatterns
from shop.platform import fallbacks, health

REST_MAX_BYTES = 4 * 1024 * 1024  # of a body that nobody has read; after a longer one the connection ends
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{8,64}")


PROBES = {"/healthz": health.healthz, "/readyz": health.readyz, "/metrics": health.metrics}


class ProbesMiddleware:
    """Answers load balancers and Prometheus, who ask by address and not by one of `ALLOWED_HOSTS`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path)
        return self.get_response(request) if probe is None else probe(request)


class ReadableMiddleware:
    """Refuse a request whose Content-Type cannot be read (see `shop.platform.handlers`), at every address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if getattr(request, "is_readable", True):
            return self.get_response(request)
        response = fallbacks.bad_request(request, malformed())
        for name, value in _usual_headers(request.is_secure()):
            response[name] = value
        return _after_the_rest(request, response)


class BodyMiddleware:
    """A body in chunks gets the length that it has, up to the limit of all bodies; above it, 413.

    What nobody has read of a body is read in the end: a server ends the connection after a large one without a
    word, and a caller who keeps connections would lose the next request on it, which is the retry.

    Django, and REST framework after it, take a body without Content-Length for an empty one. A WSGI server that
    ends the stream with the body says so (`wsgi.input_terminated`); behind ASGI the body has been read already.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "HTTP_TRANSFER_ENCODING" in request.META and not request.META.get("CONTENT_LENGTH"):
            problem = _with_its_length(request)
            if problem is not None:
                return _after_the_rest(request, problem_response(problem, request))
        return _after_the_rest(request, self.get_response(request))


def _after_the_rest(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """`response`, when up to `REST_MAX_BYTES` of the body have been read."""
    left = REST_MAX_BYTES if isinstance(request, WSGIRequest) and request.META.get("wsgi.input_terminated") else 0
    with contextlib.suppress(Exception):  # each server has its own for a caller who went away
        while left > 0 and (part := request.META["wsgi.input"].read(65_536)):
            left -= len(part)
    return response


def _with_its_length(request: Any) -> Problem | None:
    stream = request._stream
    if isinstance(request, WSGIRequest):
        if not request.META.get("wsgi.input_terminated"):
            return None  # reading on would wait for what never comes
        stream = request.META["wsgi.input"]
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    try:
        body = stream.read(most + 1)
    except Exception:  # each server has its own for a chunk that is none, and for a caller who went away
        return malformed()
    if len(body) > most:
        return payload_too_large()
    request.META["CONTENT_LENGTH"] = str(len(body))
    request._stream = io.BytesIO(body)
    return None


class UncachedMiddleware:
    """Say of every answer of the API, problems too, that no cache keeps it, and that it is its caller's alone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.path_info.startswith("/api/v1/"):
            response.headers.setdefault("Cache-Control", "no-store")
            patch_vary_headers(response, ("Authorization",))
        return response


class QueryMiddleware:
    """Refuse NUL in a query string with 400: no text of PostgreSQL holds it, and the admin's filters would ask."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "%00" in request.META.get("QUERY_STRING", ""):
            raise BadRequest("The query string holds NUL (%00); leave it out.")
        return self.get_response(request)


class DatabaseAwayMiddleware:
    """A page instead of the problem document for a shopper whom the database was away for; stands last."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        away = outage(exception)
        return None if away is None else fallbacks.database_away(request, away)


class RequestIdMiddleware:
    """Gives every request an id that its answer, its errors and its log lines share.

    Takes `X-Request-Id` from the caller where it is harmless to log, else makes one; echoes it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        logs.unbind()
        logs.bind(request_id=request_id)
        response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class LanguageMiddleware(LocaleMiddleware):
    """Django's, without its search for a language at the beginning of the path: none of our addresses has one."""

    def process_request(self, request: HttpRequest) -> None:
        # the admin speaks English to everybody: its own words have no translation, and half of one misleads
        is_admin = request.path_info.startswith("/admin/")
        translation.activate("en" if is_admin else translation.get_language_from_request(request))
        request.LANGUAGE_CODE = translation.get_language()

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        patch_vary_headers(response, ("Accept-Language",))
        response.headers.setdefault("Content-Language", translation.get_language())
        return response


class MessagesMiddleware(MessageMiddleware):
    """Django's, for pages: a call of the API has nobody to show a message to, and need not look for any."""

    def process_request(self, request: HttpRequest) -> None:
        if not request.path_info.startswith("/api/"):
            super().process_request(request)


class ContentPolicyMiddleware(CSPMiddleware):
    """django-csp's, which builds the header for each answer, with the usual one built once, at the start."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._usual = build_policy()

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        special = "_csp" in " ".join((*vars(request), *vars(response)))
        if special or settings.DEBUG:
            return super().process_response(request, response)
        response.headers.setdefault(HEADER, self._usual)
        return response


# what of a browser's device none of our pages uses, so that nothing that gets into one can; paying is on the
# provider's own page. Source: W3C, "Permissions Policy" (read 2026-11)
_NOT_USED = (
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
PERMISSIONS_POLICY = ", ".join(f"{feature}=()" for feature in _NOT_USED)


class PermissionsPolicyMiddleware:
    """Every answer but the probes' says that it needs none of the device's sensors."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.process_response(request, self.get_response(request))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response["Permissions-Policy"] = PERMISSIONS_POLICY
        return response


# the addresses of `shop.urls`
CALLBACKS = {f"/webhooks/{route.pattern}": route.callback for route in webhook_urlpatterns}


class CallbacksMiddleware:
    """Hands a provider's notification to its view, past everything that is there for shoppers and callers only.

    A signature is all the login that it has: no session, no form token, no language, no message. Its answer has
    the headers of every answer, found out once. The rest was a sixth of what a copy costs.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        inner: Any = convert_exception_to_response(_called_back)
        self._answer: Any = convert_exception_to_response(BodyMiddleware(inner))
        self._headers = {is_secure: _usual_headers(is_secure) for is_secure in (False, True)}

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info not in CALLBACKS:
            return self.get_response(request)
        is_secure = request.is_secure()
        if settings.SECURE_SSL_REDIRECT and not is_secure:
            return self.get_response(request)  # which redirects
        response: HttpResponse = self._answer(request)
        for name, value in self._headers[is_secure]:
            response[name] = value
        return response


def _called_back(request: HttpRequest) -> HttpResponse:
    request.get_host()  # refuses one that is not ours
    translation.activate("en")  # what is kept of it is not in the last shopper's language
    try:
        response: HttpResponse = CALLBACKS[request.path_info](request)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        response = problem_response(problem, request)
    response.headers.setdefault("Content-Length", str(len(response.content)))
    return response


def _usual_headers(is_secure: bool) -> list[tuple[str, str]]:
    """What those who put headers on every answer put on an empty one."""
    request, empty = HttpRequest(), HttpResponse()
    request.is_secure = lambda: is_secure  # type: ignore[method-assign]
    before = set(empty.headers)
    for usual in (
        SecurityMiddleware,
        XFrameOptionsMiddleware,
        ContentPolicyMiddleware,
        PermissionsPolicyMiddleware,
    ):
        usual(lambda _: empty).process_response(request, empty)
    return [(name, value) for name, value in empty.items() if name not in before]
