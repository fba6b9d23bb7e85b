"""Answers of last resort: unknown address, bad request, a fault of ours, no database.

A problem document for programs, a page for people.
"""

import sys

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext_noop as _
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from idempotency.errors import Problem, malformed, problem_response
from idempotency.middleware import problem_of
from idempotency.postgres.availability import outage
from idempotency.views import not_keyed

API = "/api/"


def is_of_api(path: str) -> bool:
    """Return whether an address is the API's, whose callers have no session, form or page."""
    return f"{path}/".startswith(API)


@not_keyed
@csrf_exempt
def no_such_call(request: HttpRequest, address: str = "") -> HttpResponseBase:
    """Answer 404 under the API, as an address: with `DEBUG` on Django skips `not_found`."""
    return problem_response(Problem(404, "not_found", _("There is no such address.")), request)


@csrf_exempt
def no_such_page(request: HttpRequest, address: str) -> HttpResponseBase:
    """Answer 404 elsewhere, as the last of all addresses, for the same reason."""
    return defaults.page_not_found(request, Http404(address))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return no_such_call(request) if is_of_api(request.path) else defaults.page_not_found(request, exception)


def refused(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 403 with the sentence of `exception`, mostly of the admin's."""
    return defaults.permission_denied(request, exception, template_name="shop/refused.html")


def csrf_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 to a form of another session; a GET of its address leads to the form."""
    return render(request, "403_csrf.html", status=403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 400 for what Django refuses before a view; 413 for a body above the limit."""
    problem = problem_of(exception) or malformed()
    if is_of_api(request.path) or problem.status == 413:  # no form of ours takes a file: a program sent it
        return problem_response(problem, request)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer 500 for a fault of ours; nothing was stored under the key, so a retry is safe.

    Answers 503 where the database was away outside of a view: a middleware saves the session, for one.
    """
    if (away := outage(sys.exception())) is not None:
        return database_away(request, away)
    if is_of_api(request.path):
        detail = _("Something went wrong on our side. Retry with the same key; nothing is done twice.")
        return problem_response(Problem(500, "internal_error", detail), request)
    return defaults.server_error(request)


def database_away(request: HttpRequest, problem: Problem) -> HttpResponseBase:
    """Answer 503 with Retry-After: the outcome is unknown, and a retry is done once."""
    if is_of_api(request.path):
        return problem_response(problem, request)
    return HttpResponse(render_to_string("503.html"), status=problem.status, headers=problem.headers)
