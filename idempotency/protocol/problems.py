"""Problems that exceptions mean for the caller, and who gets them as a page."""

import logging

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError
from django.http.response import HttpResponseBase

from idempotency.errors import PROBLEM_JSON, Problem, answer_sealed, malformed, payload_too_large
from idempotency.postgres.availability import outage
from idempotency.response.encryption import EncryptionError

log = logging.getLogger("idempotency")

HTML = "text/html"


def problem_of(exception: BaseException | None) -> Problem | None:
    """Return the problem that an exception means; None if it is a fault of the program."""
    if isinstance(exception, Problem):
        return exception
    if (away := outage(exception)) is not None:
        return away
    if isinstance(exception, RequestDataTooBig):
        return payload_too_large()
    if isinstance(exception, UnreadablePostError):  # the sender went away, or stalled
        return malformed()
    if isinstance(exception, EncryptionError):
        log.error("A replay is 503: %s", exception)
        return answer_sealed()
    return None


def wants_page(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Check if `response` is a problem document, and its caller would rather have a page."""
    return (
        response.headers.get("Content-Type") == PROBLEM_JSON
        and request.get_preferred_type([PROBLEM_JSON, "application/json", HTML]) == HTML
    )
