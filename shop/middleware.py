"""Gives every request an id that its answer, its errors and its log lines share."""

import re
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from idempotency import logs

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestIdMiddleware:
    """Takes `X-Request-Id` from the caller where it is harmless to log, else makes one; echoes it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        logs.unbind()
        logs.bind(request_id=request_id)
        response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response
