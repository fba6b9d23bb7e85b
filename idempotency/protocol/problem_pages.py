"""Problem pages for browsers (by `Accept`), from `idempotency/problem.html`.

Stored is the document; the page is rendered for each reader, in the active language. A project overrides the
template, or shows problems itself by `on_problem`.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template import TemplateDoesNotExist, loader
from django.template.backends.django import DjangoTemplates
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _

from idempotency.protocol.problems import HTML

TEMPLATE = "idempotency/problem.html"


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a page; it `leads_back` to the form, unless a fresh one could do it once more."""

    title: Any
    text: Any
    leads_back: bool = True


_RELOAD = _("Nothing was done. Go back, reload the page and send the form again.")
_OF_THE_KEY = ("idempotency_key_missing", "idempotency_key_invalid", "idempotency_key_weak")
_WORDS = {
    **dict.fromkeys(_OF_THE_KEY, Words(_("This page is out of date"), _RELOAD)),
    "not_authenticated": Words(
        _("Please log in"), _("Nothing was done. Log in, then open the page with the form again.")
    ),
    "token_unknown": Words(
        _("This page has expired"),
        _(
            "Nothing was done this time. You may have logged in or out since you opened the page. Go back, reload "
            "it and send the form again."
        ),
    ),
    "idempotency_key_reused": Words(
        _("You have sent this form before"),
        _(
            "It had other content then. Nothing was done this time. Go back and reload the page to see where "
            "things are."
        ),
    ),
    "idempotency_in_progress": Words(
        _("We are still working on it"),
        _("You have sent this form already. Wait a moment, then reload this page: it is done only once."),
        leads_back=False,
    ),
    "idempotency_result_expired": Words(
        _("Already done"), _("We have done this once and won't do it again."), leads_back=False
    ),
    "operation_abandoned": Words(
        _("We couldn't do this"), _("Nothing was done. Go back, reload the page and start again.")
    ),
    "payload_too_large": Words(_("Too large"), _("Nothing was done. Go back and send less, or a smaller file.")),
    "malformed": Words(_("That didn't work"), _RELOAD),
    "service_unavailable": Words(
        _("We'll be right back"),
        _(
            "We don't know yet whether it went through. Wait a moment, then reload this page: nothing is done "
            "twice."
        ),
        leads_back=False,
    ),
}


def as_page(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Turn a problem document into its page, with its status and headers."""
    if not isinstance(response, HttpResponse) or (problem := _problem_in(response)) is None:
        return response
    try:
        template = loader.get_template(TEMPLATE)
    except TemplateDoesNotExist:  # no engine in TEMPLATES looks into apps
        template = _own_engine().get_template(TEMPLATE)
    headers = response.headers
    title, text = problem.get("title", response.reason_phrase), problem.get("detail", "")
    words = _WORDS.get(str(problem.get("code")), Words(title, text))
    context = {
        "title": words.title,
        "text": words.text,
        "problem": problem,
        "result": _link(request, headers.get("Location")),
        "back": _link(request, request.META.get("HTTP_REFERER")) if words.leads_back else "",
    }
    # while the database is away, the project's context processors may fail as well
    response.content = template.render(context, None if response.status_code == 503 else request)
    headers["Content-Type"] = f"{HTML}; charset={response.charset}"
    patch_vary_headers(response, ("Accept", "Accept-Language"))
    return response


@lru_cache(maxsize=1)
def _own_engine() -> DjangoTemplates:
    return DjangoTemplates({"NAME": "idempotency", "DIRS": [], "APP_DIRS": True, "OPTIONS": {}})


def _problem_in(response: HttpResponse) -> dict[str, Any] | None:
    """Read a problem's document; None for one that is compressed, or no JSON object."""
    if "Content-Encoding" in response.headers:
        return None
    try:
        document = json.loads(response.content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _link(request: HttpRequest, address: str | None) -> str:
    """Return an address of this site, for a link; empty for any other."""
    ours = url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure())
    return address if address and ours else ""
