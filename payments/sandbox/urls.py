"""Addresses of the sandbox."""

from django.http import HttpResponse
from django.urls import path

from payments.sandbox import (
    alipay,
    alipay_bill,
    alipay_codes,
    pages,
    stripe_api,
    wechat,
    wechat_bill,
    wechat_certificates,
)

urlpatterns = [
    path("", pages.home),
    path("healthz", lambda request: HttpResponse("ok", content_type="text/plain")),
    path("pay/<str:out_trade_no>", pages.pay_page),
    path("_control/pay", pages.control_pay),
    path("_control/faults", pages.control_faults),
    path("_control/charges", pages.control_charges),
    path("_control/deliveries", pages.control_deliveries),
    path("_control/refund", pages.control_refund),
    path("_control/release", pages.control_release),
    path("_control/rotate", wechat_certificates.control_rotate),
    path("alipay/gateway.do", alipay.gateway),
    path("alipay/qr/<str:code>", alipay_codes.qr),
    path("alipay/bill", alipay_bill.download),
    path("stripe/v1/payment_intents", stripe_api.intents),
    path("stripe/v1/payment_intents/search", stripe_api.search),
    path("stripe/v1/payment_intents/<str:number>", stripe_api.intent),
    path("stripe/v1/payment_intents/<str:number>/cancel", stripe_api.cancel),
    path("stripe/v1/refunds", stripe_api.refunds),
    path("stripe/v1/refunds/<str:number>", stripe_api.refund),
    path("stripe/v1/balance_transactions", stripe_api.balance_transactions),
    path("wechat/scan", pages.scan),
    path("wechat/checkmweb", wechat.checkmweb),
    path("wechat/v3/bill/tradebill", wechat_bill.tradebill),
    path("wechat/v3/billdownload/file", wechat_bill.download),
    path("wechat/v3/certificates", wechat.certificates),
    path("wechat/v3/pay/transactions/h5", wechat.h5),
    path("wechat/v3/pay/transactions/jsapi", wechat.jsapi),
    path("wechat/v3/pay/transactions/native", wechat.native),
    path("wechat/v3/pay/transactions/out-trade-no/<str:out_trade_no>", wechat.query),
    path("wechat/v3/pay/transactions/out-trade-no/<str:out_trade_no>/close", wechat.close),
    path("wechat/v3/refund/domestic/refunds", wechat.refund),
    path("wechat/v3/refund/domestic/refunds/<str:out_refund_no>", wechat.query_refund),
]
