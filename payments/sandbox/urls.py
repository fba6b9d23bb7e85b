"""Addresses of the sandbox."""

from django.http import HttpResponse
from django.urls import path

from payments.sandbox import alipay, pages, wechat

urlpatterns = [
    path("", pages.home),
    path("healthz", lambda request: HttpResponse("ok", content_type="text/plain")),
    path("pay/<str:out_trade_no>", pages.pay_page),
    path("_control/pay", pages.control_pay),
    path("_control/faults", pages.control_faults),
    path("_control/charges", pages.control_charges),
    path("alipay/gateway.do", alipay.gateway),
    path("wechat/scan", pages.scan),
    path("wechat/v3/certificates", wechat.certificates),
    path("wechat/v3/pay/transactions/native", wechat.native),
    path("wechat/v3/pay/transactions/out-trade-no/<str:out_trade_no>", wechat.query),
    path("wechat/v3/pay/transactions/out-trade-no/<str:out_trade_no>/close", wechat.close),
    path("wechat/v3/refund/domestic/refunds", wechat.refund),
    path("wechat/v3/refund/domestic/refunds/<str:out_refund_no>", wechat.query_refund),
]
