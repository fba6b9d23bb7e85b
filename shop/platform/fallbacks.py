"""What nobody answered: unknown addresses, bad requests, faults of the program, a database that is away.

A problem document under the API, a page elsewhere.
"""

import sys

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from idempotency.errors import Problem, malformed, problem_response
from idempotency.middleware import problem_of
from idempotency.postgres.availability import outage

API = "/api/"


def is_of_api(path: str) -> bool:
    """Whether an address is the API's, whose callers see no page."""
    return f"{path}/".startswith(API)


@csrf_exempt
def no_such_call(request: HttpRequest, address: str = "") -> HttpResponseBase:
    """404 under the API, by an address of its own: with `DEBUG` on nobody asks `not_found`."""
    return problem_response(Problem(404, "not_found", "There is no such address."), request)


@csrf_exempt
def no_such_page(request: HttpRequest, address: str) -> HttpResponseBase:
    """404 elsewhere, as the last of all addresses, for the same reason."""
    return defaults.page_not_found(request, Http404(address))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """404: no such address."""
    if request.path.startswith(API):
        return no_such_call(request)
    return defaults.page_not_found(request, exception)


def csrf_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form was not of this session. Its address leads a GET to the page that the form stands on."""
    return render(request, "403_csrf.html", status=403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """400: what Django refuses before a view is asked, such as a foreign Host; 413 for a body above the limit."""
    if request.path.startswith(API):
        return problem_response(problem_of(exception) or malformed(), request)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """500: a fault of ours. Nothing was stored under the key, so the same request may be sent again.

    503 where the database was away outside of a view: the session is saved by a middleware, for one.
    """
    if (away := outage(sys.exception())) is not None:
        return database_away(request, away)
    if request.path.startswith(API):
        detail = "Something went wrong on our side. Retry with the same key; nothing is done twice."
        return problem_response(Problem(500, "internal_error", detail), request)
    return defaults.server_error(request)


def database_away(request: HttpRequest, problem: Problem) -> HttpResponseBase:
    """503 with Retry-After: what was done is not known; the same request may be sent again, and is done once."""
    if request.path.startswith(API):
        return problem_response(problem, request)
    return HttpResponse(render_to_string("503.html"), status=problem.status, headers=problem.headers)
