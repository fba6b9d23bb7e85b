"""The page of a flash sale: countdown, units left, place in line; see `shop.sales`.

The page polls, because streams would hold a thread for each of many. While the sale runs, a poll is one script of
Redis and no SQL: a signed user id in the address replaces the session. Without Redis a process reads the sale once
a second for everybody, and each member's purchase at each poll.

A page shows the state of `status`, or a final one, after which it does not poll.
"""

from typing import Any

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from idempotency.call import KeyedCall
from idempotency.errors import Problem
from idempotency.views import idempotent
from shop import sales as flashsale
from shop.api.answers import caller_id
from shop.catalog import products as catalog
from shop.errors import FlashSaleNotFound
from shop.models import FlashSalePurchase
from shop.sales import Look, Phase
from shop.web import problems
from shop.web.decorators import draws_refusals, members_only, posted_only, shows_problems

# refusals that the sale's own page explains
SHOWN_HERE = frozenset({"sold_out", "already_bought", "flash_sale_not_running"})

FINAL = frozenset({"bought", "ended"})  # states of a page that does not poll

_SALT = "shop.web.salepages.who"
_WHO_SECONDS = 86_400
LONGEST_REFRESH_SECONDS = 30  # of a page without scripts
REFRESH_SECONDS = 6


@require_safe
@shows_problems
def sale(request: HttpRequest, *, sku: str) -> HttpResponse:
    return _page(request, sku=sku)


@never_cache
def _page(request: HttpRequest, *, sku: str, problem: Problem | None = None) -> HttpResponse:
    user_id = request.user.pk
    found = flashsale.look(sku=sku, user_id=user_id)
    purchase = flashsale.purchase_of(sku=sku, user_id=user_id) if user_id is not None else None
    opens_in_ms = _milliseconds_until(found)
    refresh_seconds = min(opens_in_ms // 1000 + 1, LONGEST_REFRESH_SECONDS) if opens_in_ms else REFRESH_SECONDS
    state = _state_of(found, purchase)
    context: dict[str, Any] = {
        "product": catalog.get_product(sku=sku, user_id=user_id),
        "sale": found,
        "terms": flashsale.terms_of(sale=found.sale),
        "state": state,
        "final": state in FINAL,
        "purchase": purchase if state in {"upcoming", *FINAL} else None,
        "place": purchase.place if purchase and state == "bought" else found.place,
        "opens_in_ms": opens_in_ms,
        "refresh_seconds": refresh_seconds,
        "status_url": f"{reverse('flash-sale-status', kwargs={'sku': sku})}?who={_signed(user_id)}",
        "words": problems.words_for(problem) if problem and problem.code != "already_bought" else None,
    }
    return render(request, "shop/flashsale.html", context, status=problem.status if problem else 200)


def _refused(request: HttpRequest, problem: Problem, *, sku: str) -> HttpResponse:
    if problem.code in problems.STALE:
        messages.info(request, problems.STALE[problem.code])
        return redirect("flash-sale", sku=sku)
    if problem.code in SHOWN_HERE:
        return _page(request, sku=sku, problem=problem)
    return problems.render_problem(request, problem)


@members_only(back_to="flash-sale")
@posted_only(back_to="flash-sale")
@draws_refusals(_refused)
@idempotent(on_problem=problems.document)
def buy(request: HttpRequest, *, sku: str, call: KeyedCall) -> HttpResponse:
    placed = flashsale.buy(sku=sku, user_id=caller_id(request))
    call.about("order", placed.id)
    return redirect("order", order_id=placed.id)


@require_safe
@never_cache
def status(request: HttpRequest, *, sku: str) -> JsonResponse:
    """Answer a poll of the open page; see the module."""
    try:
        found = flashsale.look(sku=sku, user_id=_user_of(request.GET.get("who", "")))
    except FlashSaleNotFound:
        return JsonResponse({"code": "flash_sale_not_found"}, status=404)
    shown = {
        "state": _state_of(found),
        "units": found.units,
        "left": found.left,
        "arrivals": found.arrivals,
        "place": found.place,
    }
    return JsonResponse({name: value for name, value in shown.items() if value is not None})


def _state_of(found: Look, purchase: FlashSalePurchase | None = None) -> str:
    """Return the state in a word; Redis may have lost the `purchase`."""
    if found.phase is not Phase.RUNNING:
        return found.phase.value
    if found.bought or (purchase is not None and purchase.sale_id == found.sale):
        return "bought"
    return "open" if found.left else "soldout"


def _milliseconds_until(found: Look) -> int:
    if found.starts_at is None:
        return 0
    return max(round((found.starts_at - timezone.now()).total_seconds() * 1000), 1)


def _signed(user_id: int | None) -> str:
    return "" if user_id is None else signing.dumps(user_id, salt=_SALT)


def _user_of(signed: str) -> int | None:
    """Return the user that the page was drawn for; None is a guest, or an unknown one."""
    if not signed:
        return None
    try:
        return int(signing.loads(signed, salt=_SALT, max_age=_WHO_SECONDS))
    except signing.BadSignature:
        return None


urlpatterns = [
    path("flash-sales/<slug:sku>", sale, name="flash-sale"),
    path("flash-sales/<slug:sku>/buy", buy, name="flash-sale-buy"),
    path("flash-sales/<slug:sku>/status", status, name="flash-sale-status"),
]
