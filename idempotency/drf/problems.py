"""Problem documents for what REST framework raises."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_noop as _
from rest_framework import exceptions

from idempotency.errors import Problem, malformed, problem_response
from idempotency.protocol.problems import problem_of
from idempotency.views import MALFORMED


def exception_handler(exc: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Answer an error as a problem document of RFC 9457; None for a fault of the program.

    A problem is JSON, whatever the view renders and the caller accepts.
    """
    problem = problem_of(exc) or _problem_of_drf(exc)
    return None if problem is None else problem_response(problem, context["request"])


_CODES = {
    400: "malformed",
    401: "not_authenticated",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    415: "unsupported_media_type",
    429: "throttled",
}


def _problem_of_drf(exc: Exception) -> Problem | None:
    if isinstance(exc, Http404):
        return Problem(404, "not_found", _("There is no such resource."))
    if isinstance(exc, PermissionDenied):
        return Problem(403, "permission_denied", _("You may not do this."))
    if isinstance(exc, exceptions.ValidationError):
        detail = _("The request body is not valid; see errors.")
        return Problem(400, "validation_failed", detail, errors=exc.detail)
    if isinstance(exc, MALFORMED):
        return malformed()
    if not isinstance(exc, exceptions.APIException):
        return None
    headers = {}
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if (wait := getattr(exc, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, int(wait)))  # whole seconds, rounded up by DRF
    return Problem(
        exc.status_code,
        _CODES.get(exc.status_code, "refused" if exc.status_code < 500 else "unavailable"),
        str(exc.detail),
        headers=headers,
    )
