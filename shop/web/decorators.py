"""Decorators of the pages' views: login, method, and refusals as pages."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_POST

from idempotency.errors import Problem
from idempotency.response.answers import REPLAYED_HEADER
from shop.web import problems

View = Callable[..., HttpResponseBase]


def members_only(back_to: str, *, named: bool = True, keeping: Sequence[str] = ()) -> Callable[[View], View]:
    """Send a guest to the login page, and from there to the page named `back_to`.

    Args:
        named: its address takes the arguments of the view's.
        keeping: fields of a guest's form that go along in that address.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                address = reverse(back_to, kwargs=kwargs if named else None)
                typed = urlencode({name: request.POST[name] for name in keeping if name in request.POST})
                return redirect_to_login(f"{address}?{typed}" if typed else address)
            response = view(request, **kwargs)
            add_never_cache_headers(response)  # a member's orders stay out of shared caches and old tabs
            return response

        return wrapper

    return decorate


def posted_only(back_to: str, *, named: bool = True) -> Callable[[View], View]:
    """Redirect a GET of a form's address to the page `back_to`; refuse other methods with 405.

    The answer to a form stays at the form's address, where the language switch, Enter in the address bar and a
    page that renews itself open it again.

    Args:
        back_to: the page with the form, or another that shows the outcome; `named` as of `members_only`.
    """

    def go_back(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponseRedirect(reverse(back_to, kwargs=kwargs if named else None))

    return confirmed(go_back)


def confirmed(ask: View) -> Callable[[View], View]:
    """Answer a GET of a form's address with a page that asks first, others than POST with 405."""

    def decorate(view: View) -> View:
        posted, asking = require_POST(view), shows_problems(ask)

        @wraps(view)
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            answer = asking if request.method in {"GET", "HEAD"} else posted
            return answer(request, **kwargs)

        return wrapper

    return decorate


def shows_problems(view: View) -> View:
    """Show the refusals of a page that is only read as a page with a link to go on."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, **kwargs)
        except Problem as problem:
            return problems.render_problem(request, problem)

    return wrapper


def draws_refusals(
    draw: Callable[..., HttpResponse], *, accepted: Callable[..., HttpResponse] | None = None
) -> Callable[[View], View]:
    """Render the page of a keyed view's refusal, which is a problem document as the API's are.

    So the ledger stores the refusal and not a page of that minute: a replay shows what is true now, with fresh
    forms, after the refused transaction was rolled back.

    Args:
        draw: called with the request, the problem and the view's own arguments.
        accepted: draws the page of a JSON answer, called with the request and the view's own arguments.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            answer = view(request, **kwargs)
            problem = problems.problem_in(answer)
            if problem is not None:
                page = draw(request, problem, **kwargs)
            elif accepted and answer.headers.get("Content-Type") == "application/json":
                page = accepted(request, **kwargs)
            else:
                return answer
            if REPLAYED_HEADER in answer.headers:
                page.headers[REPLAYED_HEADER] = answer.headers[REPLAYED_HEADER]
            return page

        return wrapper

    return decorate
