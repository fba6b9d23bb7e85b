"""What the pages' views share: who may come in, by which method, and how a refusal becomes a page."""

from collections.abc import Callable
from functools import wraps
from typing import Any

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


def members_only(back_to: str) -> Callable[[View], View]:
    """Send a guest to the login page and from there to the page named `back_to`, which a GET can show."""

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(reverse(back_to, kwargs=kwargs))
            response = view(request, **kwargs)
            add_never_cache_headers(response)  # someone's own orders stay out of shared caches and of old tabs
            return response

        return wrapper

    return decorate


def posted_only(back_to: str, *, named: bool = True) -> Callable[[View], View]:
    """The address of a form. Who opens it with a GET is led to the page named `back_to`; other methods are a 405.

    A page drawn as the answer to a form stands at the form's address, and the language's switch, Enter in the
    address bar and a page that renews itself open it again from there.

    Args:
        back_to: the page that the form stands on, or another that says what came of it.
        named: whether that page's address has the arguments of the form's.
    """

    def decorate(view: View) -> View:
        posted = require_POST(view)

        @wraps(view)
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if request.method in {"GET", "HEAD"}:
                return HttpResponseRedirect(reverse(back_to, kwargs=kwargs if named else None))
            return posted(request, **kwargs)

        return wrapper

    return decorate


def shows_problems(view: View) -> View:
    """A page that is only read: its refusals become a page with a way on."""

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
    """Around a keyed view whose refusals are problem documents, as the API's are: `draw` makes their page.

    So the ledger keeps the refusal and not a page of that minute: a replay is drawn with what is true now, with
    forms that can be used, and after the refused transaction has been undone.

    Args:
        draw: called with the request, the problem and the view's own arguments.
        accepted: makes the page of an answer that is JSON as well, of the request and the view's own arguments.
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


def user_id_of(request: HttpRequest) -> int:
    """The member behind `members_only`."""
    user_id = request.user.pk
    assert user_id is not None  # noqa: S101 - behind members_only
    return int(user_id)
