"""Refusals as pages: a sentence that a shopper can act on, and a link to go on."""

import json
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from idempotency.errors import PROBLEM_JSON, Problem, problem_response


@dataclass(frozen=True, slots=True)
class Words:
    """Title and text of the page for one `code`."""

    title: Any
    text: Any


_WORDS = {
    "product_not_found": Words(_("Product not found"), _("This product doesn't exist or is no longer available.")),
    "order_not_found": Words(
        _("Order not found"), _("This order doesn't exist, or it belongs to another account.")
    ),
    "out_of_stock": Words(
        _("Not enough in stock"),
        _("We have fewer than you asked for. Nothing was ordered. Try a smaller quantity."),
    ),
    "flash_sale_only": Words(_("Flash sale only"), _("This product is sold in a flash sale only.")),
    "basket_full": Words(
        _("Your basket is full"),
        _("A basket holds up to 20 different products. Order these first, or remove some."),
    ),
    "mixed_currency": Words(
        _("Different currencies"),
        _("Your basket has items in different currencies. Remove some and order them separately."),
    ),
    "flash_sale_not_found": Words(_("No flash sale"), _("This product has no flash sale.")),
    "flash_sale_not_running": Words(
        _("This sale isn't running"), _("It hasn't started yet, or it's over. Nothing was ordered.")
    ),
    "sold_out": Words(_("Sold out"), _("Someone was faster: all are taken. Nothing was ordered.")),
    "already_bought": Words(
        _("You already have one"),
        _("One per customer, and you have already bought yours. Nothing more was ordered."),
    ),
    "campaign_not_found": Words(_("No such coupon"), _("This coupon campaign doesn't exist.")),
    "none_left": Words(_("All coupons are taken"), _("All coupons of this campaign have been taken.")),
    "coupon_not_usable": Words(
        _("Coupon not usable"), _("This coupon can't be used for this order. Nothing has changed.")
    ),
    "payment_begun": Words(
        _("Payment has begun"),
        _(
            "You have opened a payment, so the total can't change any more. "
            "Cancel and order again to use a coupon."
        ),
    ),
    "refund_exceeds_paid": Words(
        _("Amount too high"),
        _("This is more than we can still refund. Nothing was refunded. Enter a lower amount."),
    ),
    "refund_refused": Words(
        _("Refund declined"),
        _("The payment service declined it. No money was moved. We are looking into it."),
    ),
    "order_paid": Words(_("Already paid"), _("This order is paid. There is nothing left to do.")),
    "order_closed": Words(
        _("This order is closed"),
        _("It was cancelled or expired, so it can't be paid. You were not charged. You can order again."),
    ),
    "channel_unavailable": Words(
        _("Payment method not available"), _("You were not charged. Choose another payment method.")
    ),
    "provider_refused": Words(
        _("We couldn't start the payment"),
        _("The payment service declined it. You were not charged. Choose another payment method."),
    ),
    "provider_unavailable": Words(
        _("The payment service isn't responding"),
        _("You were not charged. Try again in a moment or choose another payment method."),
    ),
    "idempotency_result_expired": Words(
        _("Already done"), _("We have done this once and won't do it again. See the result in your orders.")
    ),
    "throttled": Words(_("Too many attempts"), _("Nothing was done. Wait a moment, then try again.")),
    "service_unavailable": Words(
        _("We'll be right back"),
        _("We don't know yet whether it went through. Try again in a few seconds: nothing is done twice."),
    ),
}
_OTHER = Words(_("That didn't work"), _("You were not charged. Go back and try again."))

# the form was a leftover: a fresh page is all it takes, and says this
STALE = {
    "idempotency_key_reused": _("This page was out of date and has been refreshed. Please choose again."),
    "token_unknown": _("This page had expired and has been refreshed. Please choose again."),
    "basket_changed": _(
        "Your basket has changed since you opened this page. Nothing new was ordered. "
        "Earlier orders are under Your orders."
    ),
}


def words_for(problem: Problem) -> Words:
    return _WORDS.get(problem.code, _OTHER)


def document(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Answer with the document that `draws_refusals` draws a page of."""
    return problem_response(problem, request)


def problem_in(answer: HttpResponseBase) -> Problem | None:
    """Read the refusal back from its document; None for any other answer."""
    if answer.headers.get("Content-Type") != PROBLEM_JSON or not isinstance(answer, HttpResponse):
        return None
    document = json.loads(answer.content)
    headers = {"Retry-After": answer.headers["Retry-After"]} if "Retry-After" in answer.headers else {}
    more = {"sku": document["sku"]} if "sku" in document else {}
    return Problem(answer.status_code, document["code"], document["detail"], headers=headers, **more)


def render_problem(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Render the page for `problem`; for a running duplicate one that asks again."""
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    if "order_id" in kwargs and problem.code in {*STALE, "order_paid"}:
        if problem.code in STALE:
            messages.info(request, STALE[problem.code])
        return HttpResponseRedirect(reverse("order", kwargs=kwargs))
    context: dict[str, Any]
    if problem.code == "idempotency_in_progress":
        # the same form again in a second: the same token and fields end on the first one's result
        fields = [(name, value) for name, values in request.POST.lists() for value in values]
        template, context = "shop/working.html", {"action": request.get_full_path(), "fields": fields}
    else:
        template = "shop/problem.html"
        context = {"words": words_for(problem), "link": _link(problem, kwargs), "code": problem.code}
    response = render(request, template, context, status=problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response


def _link(problem: Problem, kwargs: dict[str, Any]) -> tuple[str, Any]:
    ordered = problem.code == "idempotency_result_expired" and "order_id" not in kwargs
    if ordered or problem.code == "order_not_found":
        return reverse("history"), _("Your orders")
    if problem.code in {"product_not_found", "flash_sale_only", "flash_sale_not_found"}:
        return reverse("catalogue"), _("Browse products")
    if problem.code == "order_closed":
        return reverse("catalogue"), _("Back to the shop")
    if "order_id" in kwargs:
        return reverse("order", kwargs=kwargs), _("Back to the order")
    if "sku" in kwargs:
        return reverse("product", kwargs=kwargs), _("Back to the product")
    return reverse("catalogue"), _("Back to the shop")
