"""Coupons: the page that draws one, and the order page's form that uses it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from idempotency.call import KeyedCall
from idempotency.errors import Problem
from idempotency.views import idempotent
from shop.api.answers import caller_id
from shop.models import Campaign
from shop.sales import coupons
from shop.web import problems
from shop.web.decorators import draws_refusals, members_only, posted_only

SHOWN = 20  # campaigns


@members_only(back_to="coupons")
@require_safe
def show(request: HttpRequest) -> HttpResponse:
    campaigns = Campaign.objects.filter(percent_off__gt=0).order_by("-id")[:SHOWN]
    drawn = coupons.drawn(user_id=caller_id(request)).filter(campaign__in=[one.pk for one in campaigns])
    mine = {one.campaign_id: one for one in drawn}
    rows = [{"campaign": one, "coupon": mine.get(one.pk)} for one in campaigns]
    return render(request, "shop/coupons.html", {"rows": rows})


def _not_drawn(request: HttpRequest, problem: Problem, **kwargs: Any) -> HttpResponse:
    if problem.code == "none_left" or problem.code in problems.STALE:
        messages.info(request, problems.STALE.get(problem.code, problems.words_for(problem).text))
        return redirect("coupons")
    return problems.render_problem(request, problem)


@members_only(back_to="coupons", named=False)
@posted_only(back_to="coupons", named=False)
@draws_refusals(_not_drawn)
@idempotent(on_problem=problems.document)
def draw(request: HttpRequest, *, campaign: str, call: KeyedCall) -> HttpResponse:
    call.about("coupon", coupons.draw(slug=campaign, user_id=caller_id(request)).pk)
    return redirect("coupons")


def _not_used(request: HttpRequest, problem: Problem, *, order_id: UUID) -> HttpResponse:
    if problem.code in {"coupon_not_usable", "payment_begun"}:
        messages.info(request, problems.words_for(problem).text)
        return redirect("order", order_id=order_id)
    return problems.render_problem(request, problem)


@members_only(back_to="order")
@posted_only(back_to="order")
@draws_refusals(_not_used)
@idempotent(on_problem=problems.document)
def use(request: HttpRequest, *, order_id: UUID, call: KeyedCall) -> HttpResponse:
    coupons.use(code=request.POST.get("coupon", "")[:32], order_id=order_id, user_id=caller_id(request))
    call.about("order", order_id)
    messages.info(request, _("Your coupon has been applied."))
    return redirect("order", order_id=order_id)


urlpatterns = [
    path("coupons", show, name="coupons"),
    path("coupons/<slug:campaign>/draw", draw, name="coupon-draw"),
    path("orders/<hexid:order_id>/coupon", use, name="coupon-use"),
]
