"""Refusals as pages: a sentence that a shopper can act on, and a way on. The API's documents are not made here."""

import json
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from idempotency.errors import Problem


@dataclass(frozen=True, slots=True)
class Words:
    """What the page says for one `code`."""

    title: Any
    text: Any


_WORDS = {
    "product_not_found": Words(_("We don't sell this"), _("This product does not exist, or not any more.")),
    "order_not_found": Words(
        _("No such order"), _("This order does not exist, or it belongs to another account.")
    ),
    "out_of_stock": Words(
        _("Not enough left"),
        _("There are fewer left than you asked for. Nothing was ordered; try fewer."),
    ),
    "flash_sale_only": Words(
        _("Only in the flash sale"), _("This product cannot be ordered here. It is sold in a flash sale.")
    ),
    "basket_full": Words(
        _("Your basket is full"), _("It holds 20 different products. Order what is in it first, or take some out.")
    ),
    "mixed_currency": Words(
        _("Two currencies in one order"),
        _("Your basket holds prices in different currencies. Take some out and order them afterwards."),
    ),
    "flash_sale_not_found": Words(_("No flash sale here"), _("There is no flash sale of this product.")),
    "flash_sale_not_running": Words(
        _("The sale is not on"), _("It has not begun, or it is over. Nothing was ordered.")
    ),
    "sold_out": Words(_("All gone"), _("Somebody was faster: every unit is taken. Nothing was ordered.")),
    "already_bought": Words(
        _("You have yours"), _("Each buyer can have one, and you have bought yours. Nothing more was ordered.")
    ),
    "refund_exceeds_paid": Words(
        _("More than is left"),
        _("That is more than what was paid and is not yet on its way back. Nothing was moved; ask for less."),
    ),
    "refund_refused": Words(
        _("The refund was refused"),
        _("The payment service refused it, and no money was moved. We were notified and are looking into it."),
    ),
    "order_paid": Words(_("Already paid"), _("This order is paid; there is nothing left to do.")),
    "order_closed": Words(
        _("This order is closed"),
        _("It was cancelled or its time ran out, so it cannot be paid. Nothing was charged; you can order again."),
    ),
    "channel_unavailable": Words(
        _("This way to pay is not available"), _("Nothing was charged. Please choose another way to pay.")
    ),
    "provider_refused": Words(
        _("The payment could not be opened"),
        _("The payment service refused it. Nothing was charged. Please choose another way to pay."),
    ),
    "provider_unavailable": Words(
        _("The payment service does not answer"),
        _("Nothing was charged. Please try again in a moment or choose another way to pay."),
    ),
    "idempotency_result_expired": Words(
        _("This was done before"),
        _("We did this once already and will not do it again. You find the result in your orders."),
    ),
    "throttled": Words(
        _("Too many attempts"),
        _("This was not done. Wait a little, then try once more."),
    ),
    "service_unavailable": Words(
        _("We are away for a moment"),
        _("We do not know yet whether it was done. Please try again in a few seconds: nothing is done twice."),
    ),
}
_OTHER = Words(_("That did not work"), _("Nothing was charged. Please go back and try again."))

# the form was a leftover; a fresh page is all it takes, so each page with a form says it there
STALE = {
    "idempotency_key_reused": _("This page was out of date and has been renewed. Please choose again."),
    "token_unknown": _("This page was open for too long and has been renewed. Please choose again."),
    "basket_changed": _(
        "The basket has changed since this page was opened. Nothing more was ordered; what was ordered before is"
        " in your orders."
    ),
}


def words_for(code: str) -> Words:
    """What a page says for the refusal `code`."""
    return _WORDS.get(code, _OTHER)


def problem_in(answer: HttpResponseBase) -> Problem | None:
    """The refusal that `answer` is the document of (see `idempotency.errors`); None for any other answer."""
    if answer.headers.get("Content-Type") != "application/problem+json" or not isinstance(answer, HttpResponse):
        return None
    told = json.loads(answer.content)
    kept = {name: answer.headers[name] for name in ("Retry-After",) if name in answer.headers}
    more = {"sku": told["sku"]} if "sku" in told else {}
    return Problem(answer.status_code, told["code"], told["detail"], headers=kept, **more)


def render_problem(request: HttpRequest, problem: Problem) -> HttpResponse:
    """The page for `problem`, with its status; a twin that is still running becomes a page that asks again."""
    if problem.code == "idempotency_in_progress":
        return _working(request, problem)
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    if problem.code in STALE and "order_id" in kwargs:
        messages.info(request, STALE[problem.code])
        return HttpResponseRedirect(reverse("order", kwargs=kwargs))
    if problem.code == "order_paid" and "order_id" in kwargs:
        return HttpResponseRedirect(reverse("order", kwargs=kwargs))
    context = {"words": words_for(problem.code), "way_on": _way_on(problem, kwargs), "code": problem.code}
    response = render(request, "shop/problem.html", context, status=problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response


def _way_on(problem: Problem, kwargs: dict[str, Any]) -> tuple[str, Any]:
    """Where to go from here, and what the link says."""
    ordered = problem.code == "idempotency_result_expired" and "order_id" not in kwargs
    if ordered or problem.code == "order_not_found":
        return reverse("history"), _("Your orders")
    if problem.code in {"product_not_found", "flash_sale_only", "flash_sale_not_found"}:
        return reverse("catalogue"), _("See what we have")
    if problem.code == "order_closed":
        return reverse("catalogue"), _("Back to the shop")
    if "order_id" in kwargs:
        return reverse("order", kwargs=kwargs), _("Back to the order")
    if "sku" in kwargs:
        return reverse("product", kwargs=kwargs), _("Back to the product")
    return reverse("catalogue"), _("Back to the shop")


def _working(request: HttpRequest, problem: Problem) -> HttpResponse:
    """The twin of this request is running: send the very same form again in a second, by script or by button.

    The same token and fields make it the same request, so it ends on the first one's result, never on a second.
    """
    fields = [(name, value) for name, values in request.POST.lists() for value in values]
    context = {"action": request.get_full_path(), "fields": fields}
    response = render(request, "shop/working.html", context, status=problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response
