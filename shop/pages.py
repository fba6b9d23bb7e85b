"""The checkout pages: catalogue, product, order (choose, QR or redirect, result), history. HTTP mapping only.

Every unsafe form carries a one-time token, so a double click, a reload or a second tab ends on the first result;
scripts only make that nicer. Money is never believed from an address: a shopper coming back from a provider makes
the server ask the provider.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_GET, require_POST, require_safe

from idempotency.errors import Problem
from idempotency.modes import ATOMIC, PHASED
from idempotency.views import idempotent
from payments.providers.base import NextActionType
from shop import catalog, checkout, orders, problems
from shop.errors import OrderNotFound
from shop.forms import BuyForm, PayForm
from shop.orderview import PAGE_SIZE, OrderView, view_of

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


def shows_problems(view: View) -> View:
    """A page that is only read: its refusals become a page with a way on."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, **kwargs)
        except Problem as problem:
            return problems.render_problem(request, problem)

    return wrapper


def _user_id(request: HttpRequest) -> int:
    user_id = request.user.pk
    assert user_id is not None  # noqa: S101 - behind members_only
    return int(user_id)


@require_safe
def catalogue(request: HttpRequest) -> HttpResponse:
    """What there is to buy."""
    return render(request, "shop/catalogue.html", {"products": catalog.list_products(user_id=request.user.pk)})


@require_safe
@shows_problems
def product(request: HttpRequest, *, sku: str) -> HttpResponse:
    """One product, with the form that buys it."""
    return _product_page(request, sku=sku, form=BuyForm())


def _product_page(request: HttpRequest, *, sku: str, form: BuyForm) -> HttpResponse:
    item = catalog.get_product(sku=sku, user_id=request.user.pk)
    context = {"product": item, "form": form}
    return render(request, "shop/product.html", context, status=400 if form.is_bound else 200)


@members_only(back_to="product")
@require_POST
@idempotent(mode=ATOMIC, on_problem=problems.render_problem)
def buy(request: HttpRequest, *, sku: str) -> HttpResponse:
    """Place an order of this one product and go to it."""
    form = BuyForm(request.POST)
    if not form.is_valid():
        return _product_page(request, sku=sku, form=form)
    order = orders.create_order(user_id=_user_id(request), quantities={sku: form.cleaned_data["quantity"]})
    return redirect("order", order_id=order.id)


@members_only(back_to="history")
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """The shopper's orders, newest first, a page at a time."""
    mine = orders.list_orders(user_id=_user_id(request))
    before = request.GET.get("before", "")
    if len(before) == 32 and before.isalnum():
        try:
            mine = mine.filter(id__lt=UUID(hex=before))
        except ValueError:
            before = ""
    shown = list(mine[: PAGE_SIZE + 1])
    more = shown[PAGE_SIZE - 1].id.hex if len(shown) > PAGE_SIZE else ""
    return render(request, "shop/history.html", {"orders": shown[:PAGE_SIZE], "more": more, "before": before})


@members_only(back_to="order")
@require_GET
@shows_problems
def order(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    """The order and the next step: choose, scan or go on, wait, done. Providers send shoppers back to here."""
    found = view_of(order_id=order_id, user_id=_user_id(request))
    if request.GET.keys() & {"out_trade_no", "trade_no", "check"}:
        # the parameters only say that someone came back; what was paid, the provider tells the server
        if not found.final:
            checkout.ask_provider(order_id=order_id)
        return redirect("order", order_id=order_id)
    return _order_page(request, found, form=PayForm())


def _order_page(request: HttpRequest, found: OrderView, *, form: PayForm) -> HttpResponse:
    return render(request, "shop/order.html", {"view": found, "form": form}, status=400 if form.is_bound else 200)


@members_only(back_to="order")
@require_POST
@idempotent(mode=PHASED, on_problem=problems.render_problem)
def pay(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    """Open the payment by the chosen channel; to the QR code on the order's page, or to the provider's page."""
    form = PayForm(request.POST)
    if not form.is_valid():
        return _order_page(request, view_of(order_id=order_id, user_id=_user_id(request)), form=form)
    channel = form.cleaned_data["channel"]
    request.idempotency.about("order", order_id)  # type: ignore[attr-defined]
    checkout.start_payment(
        order_id=order_id,
        user_id=_user_id(request),
        channel=channel,
        resumed=request.idempotency.resumed,  # type: ignore[attr-defined]
    )
    action = view_of(order_id=order_id, user_id=_user_id(request)).action
    if action and action.channel == channel and action.type == NextActionType.REDIRECT:
        return redirect(action.url)
    return redirect("order", order_id=order_id)


@members_only(back_to="order")
@require_POST
@idempotent(mode=PHASED, on_problem=problems.render_problem)
def cancel(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    """Close the order, at the providers first."""
    request.idempotency.about("order", order_id)  # type: ignore[attr-defined]
    orders.cancel(order_id=order_id, user_id=_user_id(request))
    return redirect("order", order_id=order_id)


@require_safe
def status(request: HttpRequest, *, order_id: UUID) -> JsonResponse:
    """What the open order page asks again and again: has anything changed, is it over?"""
    if not request.user.is_authenticated:
        return JsonResponse({"code": "not_authenticated"}, status=401)
    try:
        found = view_of(order_id=order_id, user_id=_user_id(request))
    except OrderNotFound:
        return JsonResponse({"code": "order_not_found"}, status=404)
    response = JsonResponse({"status": found.order.status, "state": found.state, "final": found.final})
    add_never_cache_headers(response)
    return response


urlpatterns = [
    path("", catalogue, name="catalogue"),
    path("products/<slug:sku>", product, name="product"),
    path("products/<slug:sku>/buy", buy, name="buy"),
    path("orders", history, name="history"),
    path("orders/<hexid:order_id>", order, name="order"),
    path("orders/<hexid:order_id>/pay", pay, name="pay"),
    path("orders/<hexid:order_id>/cancel", cancel, name="cancel"),
    path("orders/<hexid:order_id>/status", status, name="order-status"),
]
