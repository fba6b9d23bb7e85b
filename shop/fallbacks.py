"""What nobody answered: unknown addresses and faults of the program, as a problem document under the API."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views import defaults

from idempotency.errors import Problem, problem_response

API = "/api/"


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """404: no such address."""
    if request.path.startswith(API):
        return problem_response(Problem(404, "not_found", "There is no such address."), request)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """500: a fault of ours. Nothing was stored under the key, so the same request may be sent again."""
    if request.path.startswith(API):
        detail = "Something went wrong on our side. Retry with the same key; nothing is done twice."
        return problem_response(Problem(500, "internal_error", detail), request)
    return defaults.server_error(request)
