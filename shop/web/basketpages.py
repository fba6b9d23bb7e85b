"""Pages of the basket: show, add, change, remove, order; see `shop.orders.basket`."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from idempotency.call import KeyedCall
from idempotency.errors import Problem
from idempotency.views import idempotent
from shop.api.answers import caller_id
from shop.catalog import products as catalog
from shop.orders import basket
from shop.orders import placing as orders
from shop.web import problems
from shop.web.decorators import draws_refusals, members_only, posted_only
from shop.web.forms import BasketForm, BuyForm

# refusals that the basket's page shows, where the shopper can act on them
SHOWN_HERE = frozenset({"out_of_stock", "mixed_currency", "flash_sale_only", "product_not_found", "basket_full"})


@require_safe
def show(request: HttpRequest) -> HttpResponse:
    return _page(request)


@never_cache
def _page(request: HttpRequest, *, form: BasketForm | None = None, problem: Problem | None = None) -> HttpResponse:
    held = basket.contents(request.session)
    context: dict[str, Any] = {
        "basket": basket.look(held),
        "form": form or BasketForm.of(held),
        "words": problems.words_for(problem) if problem else None,
        "about": problem.extra.get("sku", "") if problem else "",
    }
    status = 400 if form else 200
    return render(request, "shop/basket.html", context, status=problem.status if problem else status)


def _refused(request: HttpRequest, problem: Problem, **kwargs: Any) -> HttpResponse:
    if problem.code in problems.STALE:
        messages.info(request, problems.STALE[problem.code])
        return redirect("basket")
    if problem.code in SHOWN_HERE:
        return _page(request, problem=problem)
    return problems.render_problem(request, problem)


@posted_only(back_to="product")
@draws_refusals(_refused)
@idempotent(on_problem=problems.document)
def add(request: HttpRequest, *, sku: str) -> HttpResponse:
    form = BuyForm(request.POST)
    if not form.is_valid():
        item = catalog.get_product(sku=sku, user_id=request.user.pk)
        return render(request, "shop/product.html", {"product": item, "form": form}, status=400)
    session: Any = request.session  # a `shop.platform.sessions.SessionStore`
    basket.add(session, sku=sku, quantity=form.cleaned_data["quantity"])
    return redirect("basket")


@posted_only(back_to="basket")
@draws_refusals(_refused)
@idempotent(on_problem=problems.document)
def change(request: HttpRequest) -> HttpResponse:
    """Set the quantities (0 removes), or lower them to the stock; a guest may go on to log in."""
    if "fit" in request.POST:
        basket.put(request.session, quantities=basket.look(basket.contents(request.session)).in_stock)
        return redirect("basket")
    form = BasketForm.sent(request.POST)
    if not form.is_valid():
        return _page(request, form=form)
    basket.put(request.session, quantities=form.wanted)
    return redirect_to_login(reverse("basket")) if "login" in request.POST else redirect("basket")


@posted_only(back_to="basket", named=False)
@draws_refusals(_refused)
@idempotent(on_problem=problems.document)
def remove(request: HttpRequest, *, sku: str) -> HttpResponse:
    basket.put(request.session, quantities={sku: 0})
    return redirect("basket")


@members_only(back_to="basket")
@posted_only(back_to="basket")
@draws_refusals(_refused)
@idempotent(on_problem=problems.document)
def order(request: HttpRequest, *, call: KeyedCall) -> HttpResponse:
    """Place an order of the page's quantities; its units leave the basket with the commit.

    Every tab has its own token, so the basket makes two tabs one order: it must still hold what the page showed.
    """
    form = BasketForm.sent(request.POST)
    if not form.is_valid():
        return _page(request, form=form)
    wanted = {sku: quantity for sku, quantity in form.wanted.items() if quantity}
    if not wanted:
        messages.info(request, _("There is nothing to order in your basket."))
        return redirect("basket")
    basket.require(request.session, quantities={sku: form.held[sku] for sku in wanted})
    placed = orders.create_order(user_id=caller_id(request), quantities=wanted)
    basket.take_out(request.session, quantities=form.held)
    call.about("order", placed.id)
    return redirect("order", order_id=placed.id)


urlpatterns = [
    path("basket", show, name="basket"),
    path("basket/change", change, name="basket-change"),
    path("basket/order", order, name="basket-order"),
    path("basket/<slug:sku>/add", add, name="basket-add"),
    path("basket/<slug:sku>/remove", remove, name="basket-remove"),
]
