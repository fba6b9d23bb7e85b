"""Addresses of the sandbox: a view a method, behind the platform's check of its caller."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.urls import include, path
from django.views.generic import TemplateView

from payments.sandbox import console, delivery, faults, pages
from payments.sandbox.alipay import bill as alipay_bill
from payments.sandbox.alipay import gateway
from payments.sandbox.paypal import api as paypal
from payments.sandbox.paypal import wire as paypal_wire
from payments.sandbox.stripe import api as stripe
from payments.sandbox.stripe import wire as stripe_wire
from payments.sandbox.wechat import api as wechat
from payments.sandbox.wechat import bill as wechat_bill
from payments.sandbox.wechat import certificates, signing

View = Callable[..., Any]

handler404 = pages.unknown


def at(address: str, more: dict[str, str] | None = None, *, check: View = lambda view: view, **views: View) -> Any:
    """Serve an address by the view of the request's method."""
    checked = {method: check(view) for method, view in views.items()}

    def serve(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if (view := checked.get(request.method or "")) is None:
            return HttpResponseNotAllowed(checked)
        response: HttpResponse = view(request, **kwargs)
        return response

    return path(address, serve, more)


_control = [
    at("pay", POST=pages.control_pay),
    at("dispute", POST=pages.control_dispute),
    at("faults", GET=lambda request: JsonResponse(faults.current()), POST=pages.control_change),
    at("charges", GET=pages.control_charges),
    at("deliveries", GET=lambda request: JsonResponse(delivery.counts())),
    at("refund", POST=pages.control_refund),
    at("release", POST=lambda request: JsonResponse({"released": faults.release()})),
    at("rotate", POST=certificates.control_rotate),
]
_alipay = [
    at("gateway.do", GET=gateway.gateway, POST=gateway.gateway),
    at("qr/<str:code>", GET=gateway.qr),
    at("bill", GET=alipay_bill.download),
]
_of_paypal = partial(at, check=paypal_wire.merchant_only)
_paypal = [
    at("v1/oauth2/token", POST=paypal_wire.token),
    _of_paypal("v1/notifications/webhooks", POST=paypal.webhooks),
    _of_paypal("v1/reporting/transactions", GET=paypal.transactions),
    _of_paypal("v2/checkout/orders", POST=paypal.create),
    _of_paypal("v2/checkout/orders/<str:reference>", GET=paypal.order, PATCH=paypal.change),
    _of_paypal("v2/checkout/orders/<str:reference>/capture", POST=paypal.capture),
    _of_paypal("v2/payments/captures/<str:number>/refund", POST=paypal.refund),
]
_of_stripe = partial(at, check=stripe_wire.account_only)
_stripe = [
    _of_stripe("payment_intents", GET=stripe.intents, POST=stripe.create),
    _of_stripe("payment_intents/search", GET=stripe.search),
    _of_stripe("payment_intents/<str:number>", GET=stripe.intent),
    _of_stripe("payment_intents/<str:number>/cancel", POST=stripe.cancel),
    _of_stripe("refunds", GET=stripe.refunds, POST=stripe.give_back),
    _of_stripe("refunds/<str:number>", GET=stripe.refund),
    _of_stripe("balance_transactions", GET=stripe.balance_transactions),
]
_of_wechat = partial(at, check=signing.merchant_only)
_wechat = [
    _of_wechat("bill/tradebill", GET=wechat_bill.tradebill),
    _of_wechat("billdownload/file", GET=wechat_bill.download),
    _of_wechat("certificates", GET=certificates.listed),
    _of_wechat("pay/transactions/h5", POST=wechat.h5),
    _of_wechat("pay/transactions/jsapi", POST=wechat.jsapi),
    _of_wechat("pay/transactions/native", POST=wechat.native),
    _of_wechat("pay/transactions/out-trade-no/<str:out_trade_no>", GET=wechat.query),
    _of_wechat("pay/transactions/out-trade-no/<str:out_trade_no>/close", POST=wechat.close),
    _of_wechat("refund/domestic/refunds", POST=wechat.refund),
    _of_wechat("refund/domestic/refunds/<str:out_refund_no>", GET=wechat.query_refund),
]

urlpatterns = [
    at("", GET=console.home),
    at("console/faults/<str:fault>", POST=console.switch),
    path("sandbox.css", TemplateView.as_view(template_name="sandbox.css", content_type="text/css")),
    at("healthz", GET=lambda request: HttpResponse("ok", content_type="text/plain")),
    at("pay/<str:out_trade_no>", GET=pages.cashier, POST=pages.pay),
    at("pay/<str:out_trade_no>/decline", {"how": "decline"}, POST=console.refuse),
    at("pay/<str:out_trade_no>/cancel", {"how": "cancel"}, POST=console.refuse),
    path("_control/", include(_control)),
    path("alipay/", include(_alipay)),
    path("paypal/", include(_paypal)),
    path("stripe/v1/", include(_stripe)),
    at("wechat/scan", GET=pages.scan),
    at("wechat/checkmweb", GET=wechat.checkmweb),
    path("wechat/v3/", include(_wechat)),
]
