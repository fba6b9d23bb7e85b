"""Pages of the catalogue, a product and the history of orders; every page's address.

Every unsafe form carries a one-time token, so a double click, a reload or a second tab ends on the first result;
scripts only smooth that.
"""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import get_script_prefix, path
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from idempotency.call import KeyedCall
from idempotency.errors import Problem
from idempotency.modes import ATOMIC
from idempotency.views import idempotent
from payments.settlement.state import as_id
from shop import sales as flashsale
from shop.api.answers import caller_id
from shop.catalog import cache
from shop.catalog import products as catalog
from shop.errors import ProductNotFound
from shop.orders import placing as orders
from shop.web import basketpages, couponpages, orderpages, problems, salepages
from shop.web.decorators import draws_refusals, members_only, posted_only, shows_problems
from shop.web.forms import BuyForm
from shop.web.refundview import badges_of

PAGE_SIZE = 20  # orders on a page of the history


@require_safe
def catalogue(request: HttpRequest) -> HttpResponse:
    # its links begin with the script's prefix
    grid = cache.rendered(
        lambda products: render_to_string("shop/grid.html", {"products": products}),
        name=f"{get_language()} {get_script_prefix()}",
    )
    return render(request, "shop/catalogue.html", {"grid": grid})


@require_safe
@shows_problems
def product(request: HttpRequest, *, sku: str) -> HttpResponse:
    """Show a product and the form that buys it; ``?quantity=`` was typed before the login."""
    typed = BuyForm(request.GET)
    return _product_page(request, sku=sku, form=BuyForm(initial=typed.cleaned_data if typed.is_valid() else None))


def _product_page(
    request: HttpRequest, *, sku: str, form: BuyForm, problem: Problem | None = None
) -> HttpResponse:
    item = catalog.get_product(sku=sku, user_id=request.user.pk)
    context = {
        "product": item,
        "no_sale": item.flash_only and not flashsale.is_ahead(sku=sku),
        "form": form,
        # what open pages share until the next order: two tabs make one
        "intent": f"buy {sku} after {orders.latest_id(user_id=request.user.pk)}" if request.user.pk else None,
        "words": problems.words_for(problem) if problem else None,
    }
    status = 400 if form.is_bound else 200
    return render(request, "shop/product.html", context, status=problem.status if problem else status)


def _not_bought(request: HttpRequest, problem: Problem, *, sku: str) -> HttpResponse:
    if problem.code == "out_of_stock":
        form = BuyForm(initial={"quantity": request.POST.get("quantity")})
        try:
            return _product_page(request, sku=sku, form=form, problem=problem)
        except ProductNotFound as gone:  # meanwhile
            return problems.render_problem(request, gone)
    notice: Any = problems.STALE.get(problem.code)
    if problem.code == "idempotency_key_reused":  # another tab has ordered
        notice = _("This page has been refreshed. What you ordered is under Your orders.")
    if notice is None:
        return problems.render_problem(request, problem)
    messages.info(request, notice)
    return redirect("product", sku=sku)


@members_only(back_to="product", keeping=("quantity",))
@posted_only(back_to="product")
@draws_refusals(_not_bought)
@idempotent(mode=ATOMIC, on_problem=problems.document)
def buy(request: HttpRequest, *, sku: str, call: KeyedCall) -> HttpResponse:
    form = BuyForm(request.POST)
    if not form.is_valid():
        return _product_page(request, sku=sku, form=form)
    order = orders.create_order(user_id=caller_id(request), quantities={sku: form.cleaned_data["quantity"]})
    call.about("order", order.id)
    return redirect("order", order_id=order.id)


@members_only(back_to="product")
@posted_only(back_to="product")
@shows_problems
def like(request: HttpRequest, *, sku: str) -> HttpResponse:
    """Like the product, or with an empty ``liked`` no longer; a repeat changes nothing."""
    change = catalog.like if request.POST.get("liked") else catalog.unlike
    change(sku=sku, user_id=caller_id(request))
    return redirect("product", sku=sku)


@members_only(back_to="history")
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    mine = orders.list_orders(user_id=caller_id(request)).prefetch_related("items__product")
    if (before := as_id(request.GET.get("before", ""))) is not None:
        mine = mine.filter(id__lt=before)
    shown = list(mine[: PAGE_SIZE + 1])
    more = shown[PAGE_SIZE - 1].id.hex if len(shown) > PAGE_SIZE else ""
    badges = badges_of(shown[:PAGE_SIZE])
    rows = [(one, one.title(one.lines[0].local_name), *badges[one.id]) for one in shown[:PAGE_SIZE]]
    context = {"rows": rows, "more": more, "before": before}
    return render(request, "shop/history.html", context)


urlpatterns = [
    path("", catalogue, name="catalogue"),
    path("products/<slug:sku>", product, name="product"),
    path("products/<slug:sku>/buy", buy, name="buy"),
    path("products/<slug:sku>/like", like, name="like"),
    path("orders", history, name="history"),
    *orderpages.urlpatterns,
    *basketpages.urlpatterns,
    *couponpages.urlpatterns,
    *salepages.urlpatterns,
]
