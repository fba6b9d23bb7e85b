"""The page of an order: choose, scan or go on at the provider, result, refund.

Every unsafe form carries a one-time token. A shopper coming back from a provider proves nothing: the server asks
the provider.
"""

import re
from typing import Any
from uuid import UUID

from csp import constants as csp
from csp.decorators import csp_update
from django.contrib import messages
from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from idempotency.call import KeyedCall
from idempotency.errors import Problem
from idempotency.modes import PHASED
from idempotency.views import idempotent
from payments.api.refunding import refunding
from payments.models import Payment
from payments.providers.actions import Payer, PayMethod
from shop import sales as flashsale
from shop.api.answers import caller_id
from shop.errors import OrderNotFound
from shop.orders import checkout, lifecycle
from shop.platform.clientip import client_ip
from shop.sales import coupons
from shop.web import problems
from shop.web.actions import Action
from shop.web.decorators import confirmed, draws_refusals, members_only, posted_only, shows_problems
from shop.web.forms import CODES, PHONE, PayForm, RefundForm
from shop.web.orderview import OrderView, view_of

_PHONE = re.compile(r"iPhone|iPod|Android.+Mobile|Mobile.+Firefox|HarmonyOS.+Mobile|Windows Phone")
_WECHAT = "MicroMessenger"  # its own browser: it opens no H5 payment, and a page for it needs the shopper's openid


@members_only(back_to="order")
@require_GET
@shows_problems
def order(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    if request.GET.keys() & {"out_trade_no", "trade_no", "check"}:
        return _query_then_show(request, order_id=order_id)
    return _order_page(request, _view(request, order_id, by=request.GET.get("by", "")))


@members_only(back_to="order")
@require_safe
@shows_problems
def back(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    """Take in shoppers whom a provider sends back, with parameters of its own or none."""
    return _query_then_show(request, order_id=order_id)


def _query_then_show(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    """Query the provider, then redirect to the order's page: coming back proves nothing."""
    before = _view(request, order_id)
    if before.final:
        return redirect("order", order_id=order_id)
    answered = checkout.ask_provider(order_id=order_id)
    # else the page shows what has changed
    if answered is not None and before.payable and _view(request, order_id).state == before.state:
        none_yet = _("No payment has arrived yet. If you have paid, it will show here soon.")
        no_answer = _("The payment service isn't responding. We keep checking.")
        messages.info(request, none_yet if answered else no_answer)
    return redirect("order", order_id=order_id)


def _view(request: HttpRequest, order_id: UUID, *, by: str = "") -> OrderView:
    return view_of(order_id=order_id, user_id=caller_id(request), by=by)


def _order_page(
    request: HttpRequest,
    found: OrderView,
    *,
    form: PayForm | None = None,
    refund_form: RefundForm | None = None,
    status: int = 400,
) -> HttpResponse:
    prefetch_related_objects(found.order.lines, "product")  # their names in the reader's language
    context: dict[str, Any] = {
        "view": found,
        "form": form or PayForm(currency=found.order.currency, begun=found.chosen),
        "other_method": _other_method(request, found.action),
        "refund_form": refund_form or _refund_form(found),
        "coupons": coupons.usable(user_id=caller_id(request)) if found.takes_coupon else None,
        "place": flashsale.place_of(order_id=found.order.id),
    }
    page = render(request, "shop/order.html", context, status=status if form or refund_form else 200)
    # the QR code is in the page: a picture of its own URL would be a second trip for a slow phone
    csp_update({"img-src": [csp.SELF, "data:"]})(lambda _request: page)(request)
    return page


def _refund_form(found: OrderView, fields: Any = None) -> RefundForm:
    return RefundForm(fields, left_minor=found.refundable_minor, currency=found.order.currency)


def _other_method(request: HttpRequest, action: Action | None) -> PayMethod | None:
    """Return the method to offer instead: the wallet on this phone for the code, and back."""
    if action is None or action.attempt.channel not in PHONE:
        return None
    wallet, code = PHONE[action.attempt.channel], CODES[action.attempt.channel]
    other = code if action.attempt.method == wallet else wallet
    if other is PayMethod.H5 and not _opens_wallets(request):
        return None
    return other if checkout.has_method(channel=action.attempt.channel, method=other) else None


def _method(request: HttpRequest, form: PayForm) -> str | None:
    """Return the chosen method, else a phone's wallet; None: the channel's first."""
    channel, chosen = form.cleaned_data["channel"], form.cleaned_data["method"]
    if chosen:
        return str(chosen)
    wallet = PHONE.get(channel)
    if wallet and _opens_wallets(request) and checkout.has_method(channel=channel, method=wallet):
        return wallet
    return None


@members_only(back_to="order")
@posted_only(back_to="order")
@idempotent(mode=PHASED, on_problem=problems.render_problem)
def pay(request: HttpRequest, *, order_id: UUID, call: KeyedCall) -> HttpResponse:
    form = PayForm(request.POST)
    if not form.is_valid():
        return _order_page(request, _view(request, order_id), form=form)
    channel, method = form.cleaned_data["channel"], _method(request, form)
    call.about("order", order_id)
    checkout.start_payment(
        order_id=order_id,
        user_id=caller_id(request),
        channel=channel,
        method=method,
        payer=Payer(client_ip=client_ip(request.META)),
        resumed=call.resumed,
        was_uncertain=call.was_uncertain,
    )
    by = f"{channel}.{method or ''}"
    found = _view(request, order_id, by=by)
    if found.action and found.action.attempt.channel == channel and found.action.renderer.redirects:
        return redirect(found.action.next.url)
    address = reverse("order", kwargs={"order_id": order_id})
    return redirect(address if found.action is found.newest else f"{address}?by={by}")


def _ask_to_cancel(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    found = _view(request, order_id)
    if not found.payable:
        return redirect("order", order_id=order_id)
    return render(request, "shop/cancel.html", {"view": found})


@members_only(back_to="order")
@confirmed(_ask_to_cancel)
@idempotent(mode=PHASED, on_problem=problems.render_problem)
def cancel(request: HttpRequest, *, order_id: UUID, call: KeyedCall) -> HttpResponse:
    call.about("order", order_id)
    lifecycle.cancel(order_id=order_id, user_id=caller_id(request))
    return redirect("order", order_id=order_id)


def _refund_noted(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    return redirect("order", order_id=order_id)  # shows the refund's progress


def _refund_refused(request: HttpRequest, problem: Problem, *, order_id: UUID) -> HttpResponse:
    if problem.code == "provider_unavailable":  # reserved; the completer finishes it
        messages.info(
            request, _("The payment service isn't responding. We saved your refund request and keep trying.")
        )
        return redirect("order", order_id=order_id)
    if problem.code == "refund_exceeds_paid":
        return _too_much(request, problem, found=_view(request, order_id))
    return problems.render_problem(request, problem)


def _too_much(request: HttpRequest, problem: Problem, *, found: OrderView) -> HttpResponse:
    """Show the form with its input and what is left now, or the order if nothing is."""
    if not found.refundable_minor:
        requested = _("A refund of the full amount was already requested.")
        messages.info(request, requested if found.going_back else problem.detail)
        return redirect("order", order_id=found.order.id)
    form = _refund_form(found, request.POST)
    form.add_error("amount", problems.words_for(problem).text)
    return _order_page(request, found, refund_form=form, status=problem.status)


def _ask_to_refund(request: HttpRequest, *, order_id: UUID) -> HttpResponse:
    found = _view(request, order_id)
    if "amount" not in request.GET or not found.refundable:
        return redirect("order", order_id=order_id)
    form = _refund_form(found, request.GET)
    if not form.is_valid():
        return _order_page(request, found, refund_form=form)
    return render(request, "shop/refund.html", {"view": found, "form": form})


@members_only(back_to="order")
@confirmed(_ask_to_refund)
@draws_refusals(_refund_refused, accepted=_refund_noted)
@idempotent(mode=refunding, on_problem=problems.document)
def refund(request: HttpRequest, *, order_id: UUID, call: KeyedCall) -> HttpResponseBase:
    """Refund as the API's call does for the payer; its answer is stored."""
    found = _view(request, order_id)
    payment = Payment.objects.filter(order_id=order_id, owner_id=caller_id(request)).first()
    if payment is None:
        raise OrderNotFound
    form = _refund_form(found, request.POST)
    if not form.is_valid():
        return _order_page(request, found, refund_form=form)
    call.about("payment", payment.id)
    wanted = {"amount_minor": form.amount_minor, "reason": form.cleaned_data["reason"]}
    return refunding.respond(request, {"payment": payment.id.hex, **wanted})


def _opens_wallets(request: HttpRequest) -> bool:
    """Guess if a link can open a wallet app from this browser; decides what comes first."""
    agent = request.headers.get("User-Agent", "")[:1000]
    return _WECHAT not in agent and _PHONE.search(agent) is not None


@require_safe
@never_cache
def status(request: HttpRequest, *, order_id: UUID) -> JsonResponse:
    """Answer a poll of the open order page: its state, and whether that is final."""
    if not request.user.is_authenticated:
        return JsonResponse({"code": "not_authenticated"}, status=401)
    try:
        found = _view(request, order_id)
    except OrderNotFound:
        return JsonResponse({"code": "order_not_found"}, status=404)
    return JsonResponse({"status": found.order.status, "state": found.state, "final": found.final})


urlpatterns = [
    path("orders/<hexid:order_id>", order, name="order"),
    path("orders/<hexid:order_id>/back", back, name="back"),
    path("orders/<hexid:order_id>/pay", pay, name="pay"),
    path("orders/<hexid:order_id>/method", pay, name="pay-method"),
    path("orders/<hexid:order_id>/go-on", pay, name="go-on"),
    path("orders/<hexid:order_id>/cancel", cancel, name="cancel"),
    path("orders/<hexid:order_id>/refund", refund, name="refund"),
    path("orders/<hexid:order_id>/status", status, name="order-status"),
]
