"""Addresses of the sandbox."""

from django.http import HttpResponse
from django.urls import include, path
from django.views.generic import TemplateView

from payments.sandbox import console, pages
from payments.sandbox.alipay import bill as alipay_bill
from payments.sandbox.alipay import codes, gateway
from payments.sandbox.paypal import api as paypal
from payments.sandbox.paypal import wire as paypal_wire
from payments.sandbox.stripe import api as stripe
from payments.sandbox.wechat import api as wechat
from payments.sandbox.wechat import bill as wechat_bill
from payments.sandbox.wechat import certificates

_control = [
    path("pay", pages.control_pay),
    path("dispute", pages.control_dispute),
    path("faults", pages.control_faults),
    path("charges", pages.control_charges),
    path("deliveries", pages.control_deliveries),
    path("refund", pages.control_refund),
    path("release", pages.control_release),
    path("rotate", certificates.control_rotate),
]
_alipay = [
    path("gateway.do", gateway.gateway),
    path("qr/<str:code>", codes.qr),
    path("bill", alipay_bill.download),
]
_paypal = [
    path("v1/oauth2/token", paypal_wire.token),
    path("v1/notifications/webhooks", paypal.webhooks),
    path("v1/reporting/transactions", paypal.transactions),
    path("v2/checkout/orders", paypal.orders),
    path("v2/checkout/orders/<str:reference>", paypal.order),
    path("v2/checkout/orders/<str:reference>/capture", paypal.capture),
    path("v2/payments/captures/<str:number>/refund", paypal.refund),
]
_stripe = [
    path("payment_intents", stripe.intents),
    path("payment_intents/search", stripe.search),
    path("payment_intents/<str:number>", stripe.intent),
    path("payment_intents/<str:number>/cancel", stripe.cancel),
    path("refunds", stripe.refunds),
    path("refunds/<str:number>", stripe.refund),
    path("balance_transactions", stripe.balance_transactions),
]
_wechat = [
    path("bill/tradebill", wechat_bill.tradebill),
    path("billdownload/file", wechat_bill.download),
    path("certificates", wechat.certificates),
    path("pay/transactions/h5", wechat.h5),
    path("pay/transactions/jsapi", wechat.jsapi),
    path("pay/transactions/native", wechat.native),
    path("pay/transactions/out-trade-no/<str:out_trade_no>", wechat.query),
    path("pay/transactions/out-trade-no/<str:out_trade_no>/close", wechat.close),
    path("refund/domestic/refunds", wechat.refund),
    path("refund/domestic/refunds/<str:out_refund_no>", wechat.query_refund),
]

urlpatterns = [
    path("", console.home),
    path("console/faults/<str:fault>", console.switch),
    path("sandbox.css", TemplateView.as_view(template_name="sandbox.css", content_type="text/css")),
    path("healthz", lambda request: HttpResponse("ok", content_type="text/plain")),
    path("pay/<str:out_trade_no>", pages.pay_page),
    path("pay/<str:out_trade_no>/decline", console.refuse, {"how": "decline"}),
    path("pay/<str:out_trade_no>/cancel", console.refuse, {"how": "cancel"}),
    path("_control/", include(_control)),
    path("alipay/", include(_alipay)),
    path("paypal/", include(_paypal)),
    path("stripe/v1/", include(_stripe)),
    path("wechat/scan", pages.scan),
    path("wechat/checkmweb", wechat.checkmweb),
    path("wechat/v3/", include(_wechat)),
]
